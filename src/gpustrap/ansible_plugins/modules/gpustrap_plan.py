#!/usr/bin/python
"""Documentation of the action plugin of this name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpustrap_plan
short_description: Decide what a node gets, as C(gpustrap plan) does
description:
  - Asks the node what it is (M(gpustrap_facts)), takes its C(gpustrap_*) variables, and decides on the controller
    with the same resolver and catalog as C(gpustrap plan). Nothing is changed, and no lock is written or read.
  - Variables that are unknown or wrong, variables of roles in the inventory, and what the resolver refuses fail the
    task, in the words of C(gpustrap plan). What it notices besides is shown as warnings; notes are shown with C(-v).
  - gpustrap must be installed for the Python that runs Ansible.
  - Needs root on the node, as C(become) gives it, to read everything.
options: {}
author: [gpustrap]
attributes:
  check_mode:
    support: full
    description: Reads only.
seealso:
  - module: gpustrap_facts
"""

EXAMPLES = r"""
- name: Plan the node
  gpustrap_plan:
  become: true
  register: __plan

- name: Take the plan
  ansible.builtin.set_fact:
  args: "{{ __plan.variables }}"
"""

RETURN = r"""
variables:
  description: C(gpustrap_roles), the list of roles in the order in which they run, and every variable of these roles.
  returned: success
  type: dict
roles:
  description: The same by role, as the lock has it.
  returned: when the node could be asked
  type: dict
pending:
  description: The same for what is decided, but this gpustrap has no role for yet.
  returned: when the node could be asked
  type: dict
choices:
  description: Every choice with its value, reason, source and confidence.
  returned: when the node could be asked
  type: list
  elements: dict
findings:
  description: What was noticed, each with code, severity, subject, message, evidence and advice.
  returned: when the node could be asked
  type: list
  elements: dict
problems:
  description: Why there is no plan, each with code, subject, message, evidence and remedy.
  returned: when the node could be asked
  type: list
  elements: dict
"""
