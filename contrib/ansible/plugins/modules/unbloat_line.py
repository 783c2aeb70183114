#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: the shaping of one line of one router, by the program unbloat."""

from __future__ import annotations

DOCUMENTATION = r"""
module: unbloat_line
short_description: Keep the queue of a line short
description:
  - Sets a router up so that packets do not wait in the modem while the line is busy, or takes that back.
  - It asks the program unbloat for its plan and for what the router has, and changes the router only if they differ.
  - The program runs where the task runs. With O(router) it reaches a router elsewhere over SSH, which needs neither Python
    nor the program there; then let the task run on the controller, with C(connection=local) or C(delegate_to=localhost).
options:
  state:
    description: V(present) shapes the line; V(absent) goes back to the state before unbloat.
    choices: [present, absent]
    default: present
    type: str
  wan:
    description: Interface towards the internet.
    required: true
    type: str
  lan:
    description: Interface towards the home.
    type: str
  down:
    description: What the line carries towards the home, as in C(50mbit). The shaper is set a little below.
    type: str
  up:
    description: What the line carries from the home, as in C(10mbit).
    type: str
  shape_down:
    description: The shaper itself, as a rate or a share of O(down), as in C(97%).
    type: str
  shape_up:
    description: The shaper itself, as a rate or a share of O(up).
    type: str
  aqm:
    description: The queue; usually the best that the router has.
    choices: [cake, fq_codel, fifo]
    type: str
  classes:
    description: V(on), V(off), or a file of rules where the program runs.
    type: str
  link_layer:
    description: How the line wraps packets.
    choices: [ethernet, docsis, atm, ptm]
    type: str
  overhead:
    description: Bytes that the line adds to a packet.
    type: int
  goal:
    description: How much the latency may rise under load, as in C(5ms).
    type: str
  persist:
    description: Apply it at every boot. Where the daemon keeps the line, it does that anyway.
    default: false
    type: bool
  replace:
    description: Take over from a shaper that unbloat did not make.
    default: false
    type: bool
  router:
    description: Address of the router, as in C(ssh://root@192.168.1.1) or C(opnsense+https://192.168.1.1); usually this machine.
    type: str
  platform:
    description: What the router is; usually it is asked.
    type: str
  identity:
    description: File with a private key for SSH; usually those of the agent and the user.
    type: path
  known_hosts:
    description: File of host keys; usually the user's and the system's.
    type: path
  api_key_file:
    description: File with the key and secret of OPNsense's API.
    type: path
  fingerprint:
    description: SHA-256 of the certificate of OPNsense's API.
    type: str
  state_dir:
    description: Where the journal of changes is kept; usually where the program keeps it.
    type: path
  executable:
    description: The program.
    default: unbloat
    type: str
attributes:
  check_mode:
    support: full
    description: Nothing is changed.
  diff_mode:
    support: full
    description: The plan that is in force, and the plan that would be.
author: unbloat
"""

EXAMPLES = r"""
- name: On the router itself
  unbloat.router.unbloat_line:
    wan: eth0
    down: 50mbit
    up: 10mbit
    persist: true

- name: A router without Python, from the controller
  unbloat.router.unbloat_line:
    router: ssh://root@{{ ansible_host }}
    wan: pppoe-wan
    down: "{{ line_down }}"
    up: "{{ line_up }}"
  delegate_to: localhost
"""

RETURN = r"""
commands:
  description: What was done on the router, as the program tells it.
  returned: changed, outside of check mode
  type: list
  elements: str
plan:
  description: The plan that is in force, or would be; empty if there is none.
  returned: always
  type: dict
ansible_facts:
  description: C(unbloat), with platform, shapers, lines by WAN, and how a running daemon keeps them.
  returned: always
  type: dict
"""

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule

# Parts of a plan that explain it, and change nothing on the router.
EXPLAINS = ("reasons", "basis", "schema", "goal_ns")


def effect(plan: dict[str, Any] | None) -> dict[str, Any]:
    """Return what a plan does, without its reasons."""
    return {k: v for k, v in (plan or {}).items() if k not in EXPLAINS}


def facts(status: dict[str, Any]) -> dict[str, Any]:
    """Return what plays may use of a status."""
    shown = ("device", "ours", "rate_bps", "queue", "says")
    return {
        "platform": status["platform"],
        "at_boot": status["at_boot"],
        "shapers": [{k: s[k] for k in shown} for s in status["shapers"] or []],
        "lines": {c["wan"]: effect(c["plan"]) for c in status["committed"]},
        "daemon": (status.get("daemon") or {}).get("wans", []),
    }


class Program:
    """The program unbloat, for one router."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        p = module.params
        flags = {
            "--router": p["router"],
            "--for": p["platform"],
            "--identity": p["identity"],
            "--known-hosts": p["known_hosts"],
            "--api-key-file": p["api_key_file"],
            "--fingerprint": p["fingerprint"],
        }
        self.where = [x for flag, value in flags.items() if value for x in (flag, value)]
        self.journal = ["--state-dir", p["state_dir"]] if p["state_dir"] else []

    def ask(self, *args: str, data: str | None = None) -> Any:
        """Run a command of the program, and return its JSON."""
        argv = [self.module.params["executable"], *args, "--json", *self.where]
        code, out, err = self.module.run_command(argv, data=data, environ_update={"LC_ALL": "C"})
        try:
            # status prints what it found, too, when it is not what was applied.
            answer = json.loads(out)
        except ValueError:
            answer = None
        if answer is None or (code != 0 and (args[0] != "status" or "shapers" not in answer)):
            self.module.fail_json(msg=err.strip() or out.strip() or "%s says nothing" % argv[0], rc=code, cmd=argv)
        return answer

    def status(self) -> dict[str, Any]:
        return self.ask("status", "--wan", self.module.params["wan"], *self.journal)

    def plan(self) -> dict[str, Any]:
        """Return the plan for what the router has."""
        p = self.module.params
        here = [] if p["router"] else ["--here"]
        names = ("wan", "lan", "down", "up", "shape_down", "shape_up", "aqm", "classes", "link_layer", "overhead", "goal")
        given = [x for n in names if p[n] is not None for x in ("--" + n.replace("_", "-"), str(p[n]))]
        return self.ask("plan", *given, *here)

    def apply(self, plan: dict[str, Any]) -> dict[str, Any]:
        p = self.module.params
        more = [flag for flag, on in (("--persist", p["persist"]), ("--replace", p["replace"])) if on]
        return self.ask("apply", "-", "--yes", *more, *self.journal, data=json.dumps(plan))

    def revert(self) -> None:
        self.ask("revert", "--wan", self.module.params["wan"], *self.journal)


def main() -> None:
    text = {"type": "str"}
    file = {"type": "path"}
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
            "wan": {"type": "str", "required": True},
            "lan": text,
            "down": text,
            "up": text,
            "shape_down": text,
            "shape_up": text,
            "aqm": {"type": "str", "choices": ["cake", "fq_codel", "fifo"]},
            "classes": text,
            "link_layer": {"type": "str", "choices": ["ethernet", "docsis", "atm", "ptm"]},
            "overhead": {"type": "int"},
            "goal": text,
            "persist": {"type": "bool", "default": False},
            "replace": {"type": "bool", "default": False},
            "router": text,
            "platform": text,
            "identity": file,
            "known_hosts": file,
            "api_key_file": file,
            "fingerprint": text,
            "state_dir": file,
            "executable": {"type": "str", "default": "unbloat"},
        },
        required_if=[("state", "present", ("down", "up", "shape_down", "shape_up"), True)],
        supports_check_mode=True,
    )
    program, wan = Program(module), module.params["wan"]
    present = module.params["state"] == "present"

    status = program.status()
    kept = next((c["plan"] for c in status["committed"] if c["wan"] == wan), None)
    wanted = program.plan() if present else None
    drift = [d["differences"] for d in status.get("drift") or [] if d["wan"] == wan]
    pending = any(p["wan"] == wan for p in status["pending"])
    boot = present and module.params["persist"] and not status["at_boot"] and not status.get("daemon")
    changed = effect(kept) != effect(wanted) or bool(drift) or pending or boot

    result: dict[str, Any] = {"changed": changed, "plan": effect(wanted), "commands": []}
    before, after = ({"plan": effect(p), "differs": d, "boot": b} for p, d, b in ((kept, sum(drift, []), status["at_boot"]), (wanted, [], status["at_boot"] or boot)))
    if module._diff:
        result["diff"] = {"before": before, "after": after}
    if changed and not module.check_mode:
        if present:
            result["commands"] = program.apply(wanted).get("commands") or []
        else:
            program.revert()
        status = program.status()
    result["ansible_facts"] = {"unbloat": facts(status)}
    module.exit_json(**result)


if __name__ == "__main__":
    main()
