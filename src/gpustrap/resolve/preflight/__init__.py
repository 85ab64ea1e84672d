"""What a plan notices about a node before anything is changed there."""
