package config

// Keys returns the keys of each table of a configuration; "" is the top level, whose
// tables are among its keys. What writes configurations is compared with it.
func Keys() map[string][]string {
	return map[string][]string{"": topKeys(), "wan": wanKeys(), "ui": uiKeys(), "schedule": scheduleKeys(), "notify": notifyKeys()}
}
