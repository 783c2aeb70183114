"""Renders the plugin's templates as OPNsense's configd does.

    opnsense.py SERVICE CONFIG.XML ROOT [CORE]

SERVICE is the plugin's directory service. The files of +TARGETS go below ROOT. CORE is a
checkout of OPNsense's core repository, whose own template.py is used then; without it
the few things of it that the templates use are stood in for.
"""

import os
import shutil
import sys
import types
import xml.etree.ElementTree as ElementTree


def tree(node):
    """Return config.xml as templates see it: texts, dictionaries, and lists of equal tags."""
    if len(node) == 0:
        return node.text
    out = {}
    for item in node:
        value = tree(item)
        if value is None:
            continue
        if isinstance(value, dict):
            value.update({"@" + k: v for k, v in item.attrib.items()})
        if item.tag not in out:
            out[item.tag] = value
        elif isinstance(out[item.tag], list):
            out[item.tag].append(value)
        else:
            out[item.tag] = [out[item.tag], value]
    return out


class Helpers:
    """What the templates use of OPNsense's helpers."""

    def __init__(self, config):
        self.config = config

    def getNodeByTag(self, tag):
        node = self.config
        for part in tag.split("."):
            if not isinstance(node, dict) or part not in node:
                return None
            node = node[part]
        return node

    def empty(self, tag):
        return self.getNodeByTag(tag) in (None, "", "0", {}, [])

    def toList(self, tag):
        node = self.getNodeByTag(tag)
        if node is None:
            return []
        return node if isinstance(node, list) else [node]


def stand_in(service, config, root):
    import jinja2

    templates = os.path.join(service, "templates")
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates), trim_blocks=True, extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"]
    )
    env.globals["helpers"] = Helpers(config)
    with open(os.path.join(templates, "OPNsense/Unbloat/+TARGETS")) as targets:
        for line in targets:
            source, target = line.strip().split(":")
            name = root + target
            os.makedirs(os.path.dirname(name), exist_ok=True)
            with open(name, "w", encoding="utf-8") as out:
                out.write(env.get_template("OPNsense/Unbloat/" + source).render(config))


def real(service, file, root, core):
    # template.py looks for templates beside its own directory, which may be no link.
    beside = os.path.join(root, "service")
    os.makedirs(beside)
    shutil.copytree(os.path.join(core, "src/opnsense/service/modules"), os.path.join(beside, "modules"))
    shutil.copytree(os.path.join(service, "templates"), os.path.join(beside, "templates"))
    syslog = types.ModuleType("syslog")  # FreeBSD's and Linux's have it; this one prints
    syslog.__getattr__ = lambda name: (lambda *a: print(*a, file=sys.stderr)) if name == "syslog" else 0
    sys.modules["syslog"] = syslog
    sys.path.insert(0, beside)
    from modules import config, template

    t = template.Template(root)
    t.set_config(config.Config(file).get())
    if not t.generate("OPNsense/Unbloat"):
        sys.exit("template.py rendered nothing")


if __name__ == "__main__":
    if len(sys.argv) > 4:
        real(*sys.argv[1:5])
    else:
        stand_in(sys.argv[1], tree(ElementTree.parse(sys.argv[2]).getroot()), sys.argv[3])
