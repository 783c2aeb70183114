# Written by OPNsense from Firewall: Queue control.
{% if not helpers.empty('OPNsense.unbloat.general.enabled') %}
unbloatd_enable="YES"
unbloatd_setup="/usr/local/opnsense/scripts/OPNsense/Unbloat/setup.php"
unbloatd_env_file="/usr/local/etc/unbloat/api.env"
{% else %}
unbloatd_enable="NO"
{% endif %}
