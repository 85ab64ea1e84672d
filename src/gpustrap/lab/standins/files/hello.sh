#!/bin/sh
echo "hello from the lab's channel (simulated)"
