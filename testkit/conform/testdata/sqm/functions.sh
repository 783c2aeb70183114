# What sqm-scripts needs of OpenWrt's /lib/functions.sh. $SHIM_CONFIG sets SECTIONS
# and a variable for each option, SECTION_OPTION.
config_load() {
	. "$SHIM_CONFIG"
}

config_get() {
	eval "printf '%s\n' \"\$${1}_$2\""
}

config_foreach() {
	for shim_section in $SECTIONS; do
		"$1" "$shim_section"
	done
}
