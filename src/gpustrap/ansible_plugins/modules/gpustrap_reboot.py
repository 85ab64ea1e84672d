#!/usr/bin/python
"""Documentation of the action plugin of this name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpustrap_reboot
short_description: Reboot a node where that brings the installed driver to life, and only there
description:
  - Compares the loaded module, the module on disk of the kernel that boots next, and the driver's library. Decides with
    the same function as C(gpustrap inspect).
  - Where a reboot helps and is allowed, the node is rebooted once, and looked at again when it is back. It is back when
    it shows another boot id, over a new connection, and systemd has started everything.
  - Where it is not allowed, the task says so in RV(boot) and ends well, so that what does not need the driver can
    follow.
  - Where what is installed is wrong (versions on disk differ, no module for the next kernel, another driver would take
    the GPUs first), a reboot would not help; the task fails and says what does.
  - The same reboot is not tried twice. What the node was rebooted for is noted there.
  - The machine that Ansible runs on is never rebooted.
  - gpustrap must be installed for the Python that runs Ansible.
options:
  stage:
    description: C(kernel) where another kernel has to run before a driver can be built, C(driver) once it is there,
      C(removal) once it is gone.
    type: str
    choices: [kernel, driver, removal]
    required: true
  allowed:
    description: Whether the node may be rebooted.
    type: bool
    default: false
  minutes:
    description: How long it may take to come back. A server with eight GPUs can need more than ten for its self-test.
    type: int
    default: 30
  version:
    description: The driver version that should be there; empty asks for no certain one.
    type: str
    default: ""
  mok:
    description: Whether a person may be asked to enrol the node's key for modules under Secure Boot.
    type: bool
    default: false
  staged:
    description: Whether M(gpustrap_mok) asked for the enrolment in this run. Only handed through to RV(boot).
    type: bool
    default: false
  missed:
    description: Whether it was asked for before, and the boot since then went by without it. Only to be told.
    type: bool
    default: false
author: [gpustrap]
attributes:
  check_mode:
    support: full
    description: Says what would follow.
seealso:
  - module: gpustrap_boot
  - module: gpustrap_mok
"""

EXAMPLES = r"""
- name: Ensure the installed driver runs
  gpustrap_reboot:
    stage: driver
    allowed: true
    version: "{{ nvidia_driver_version }}"
  register: __boot
"""

RETURN = r"""
driver_loaded:
  description: Whether the installed driver runs now.
  returned: always
  type: bool
boot:
  description: stage, state (fits, rebooted, reboot-needed, person, next-boot, useless, lost), code, reason, evidence
    and remedy.
  returned: always
  type: dict
"""
