package reason

// Codes of a plan: why each setting has its value, and warnings. A language that has
// no texts for any of them uses the English ones.

// Words of a plan as a whole.
const (
	PlanHead        Code = "plan_head"
	PlanHome        Code = "plan_home"
	PlanGoal        Code = "plan_goal"
	PlanTitle       Code = "plan_title"
	PlanUnshaped    Code = "plan_unshaped"
	PlanShaped      Code = "plan_shaped"
	PlanBoth        Code = "plan_both"
	PlanClasses     Code = "plan_classes"
	PlanWarning     Code = "plan_warning"
	PlanNote        Code = "plan_note"
	PlanOn          Code = "plan_on"
	PlanOfArticle   Code = "plan_of_article"
	SettingIs       Code = "setting_is"
	SettingOnlyHere Code = "setting_only_here"
	SettingDiffers  Code = "setting_differs"
)

// Values that a plan sets, where they are more than a word of the router's.
const (
	WordValue           Code = "word_value"
	RateValue           Code = "rate_value"
	TimeValue           Code = "time_value"
	BytesValue          Code = "bytes_value"
	CountValue          Code = "count_value"
	PercentValue        Code = "percent_value"
	OffValue            Code = "off_value"
	BoundsValue         Code = "bounds_value"
	ClassFirst          Code = "class_first"
	ClassFirstLeast     Code = "class_first_least"
	ClassFirstMost      Code = "class_first_most"
	ClassFirstLeastMost Code = "class_first_least_most"
)

// Why a plan sets what it sets: the queue discipline and the side.
const (
	AsAsked        Code = "as_wished"
	AsGiven        Code = "as_given"
	TheDefault     Code = "the_default"
	AQMOfArticle   Code = "aqm_of_article"
	AQMAssumed     Code = "aqm_assumed"
	AQMCake        Code = "aqm_cake"
	AQMCakeAssumed Code = "aqm_cake_assumed"
	AQMFQCodel     Code = "aqm_fq_codel"
	AQMLight       Code = "aqm_light"
	ClassesTooDear Code = "classes_too_dear"
	SideShort      Code = "side_short"
	WorkUneven     Code = "work_uneven"
	AQMOfEngine    Code = "aqm_of_engine"
	AQMFIFO        Code = "aqm_fifo"
	AQMWeights     Code = "aqm_weights"
	SideOfEngine   Code = "side_of_engine"
	SideUsual      Code = "side_usual"
	SideOfArticle  Code = "side_of_article"
	SideNoIFB      Code = "side_no_ifb"
	SideFlowTable  Code = "side_flow_table"
	FlowTable      Code = "flow_table"
	FlowTableGives Code = "flow_table_gives"
	HardLimits     Code = "hard_limits"
	ClassesPast    Code = "classes_past"
	SideDummynet   Code = "side_dummynet"
	DeviceIFB      Code = "device_ifb"
	DeviceLAN      Code = "device_lan"
)

// Why: rates.
const (
	RateUnmeasured Code = "rate_unmeasured"
	RateShare      Code = "rate_share"
	RateBelowUp    Code = "rate_below_up"
	RateBelowDown  Code = "rate_below_down"
	RateItself     Code = "rate_itself"
	RateUncounted  Code = "rate_uncounted"
	RateToTune     Code = "rate_to_tune"
	RateTwoDigits  Code = "rate_two_digits"
	RateOfArticle  Code = "rate_of_article"
	RateAboveLine  Code = "rate_above_line"
)

// Why: how packets are counted.
const (
	OverheadOf      Code = "overhead_of"
	OverheadUntold  Code = "overhead_untold"
	FramingDOCSIS   Code = "framing_docsis"
	FramingATM      Code = "framing_atm"
	FramingPPPoEPTM Code = "framing_pppoe_ptm"
	FramingPTM      Code = "framing_ptm"
	FramingPPPoE    Code = "framing_pppoe"
	FramingUnknown  Code = "framing_unknown"
	// Measured on this line.
	FramingMeasured      Code = "framing_measured"
	FramingMeasuredCells Code = "framing_measured_cells"
	MPULeast             Code = "mpu_least"
)

// Why: HTB's numbers.
const (
	ClassQuantumOfArticle Code = "class_quantum_of_article"
	BurstOfHTB            Code = "burst_of_htb"
	OffloadsOff           Code = "offloads_off"
)

// Why: CAKE's keywords.
const (
	TinsNoRules        Code = "tins_no_rules"
	TinsAlike          Code = "tins_alike"
	TinsSmallFirst     Code = "tins_small_first"
	TinsOfClasses      Code = "tins_of_classes"
	IsolationOfHome    Code = "isolation_of_home"
	IngressCharged     Code = "ingress_charged"
	NATLookup          Code = "nat_lookup"
	NATNumbered        Code = "nat_numbered"
	NATUnnumbered      Code = "nat_unnumbered"
	IntervalOfLine     Code = "interval_of_line"
	IntervalOfRTT      Code = "interval_of_rtt"
	IntervalOfPictures Code = "interval_of_pictures"
	IntervalOfCake     Code = "interval_of_cake"
	IntervalBusy       Code = "interval_busy"
	IntervalOfMany     Code = "interval_of_many"
	AcksThinned        Code = "acks_thinned"
	AcksLeft           Code = "acks_left"
)

// Why: fq_codel's numbers.
const (
	NumberUnused     Code = "number_unused"
	QuantumFull      Code = "quantum_full"
	QuantumSmall     Code = "quantum_small"
	QuantumLarge     Code = "quantum_large"
	FlowsUsual       Code = "flows_usual"
	TargetUntold     Code = "target_untold"
	TargetTooShort   Code = "target_too_short"
	TargetWished     Code = "target_wished"
	TargetOfArticle  Code = "target_of_article"
	TargetOfPacket   Code = "target_of_packet"
	TargetUsual      Code = "target_usual"
	TargetOfClasses  Code = "target_of_classes"
	IntervalOfTarget Code = "interval_of_target"
	IntervalOfSender Code = "interval_of_sender"
	ECNUntold        Code = "ecn_untold"
	ECNSlowUplink    Code = "ecn_slow_uplink"
	ECNTold          Code = "ecn_told"
	LimitOfPf        Code = "limit_of_pf"
	LimitOfMemory    Code = "limit_of_memory"
)

// Why: a FIFO's length.
const (
	FIFOWished      Code = "fifo_wished"
	FIFOHolds       Code = "fifo_holds"
	FIFODerived     Code = "fifo_derived"
	FIFOShort       Code = "fifo_short"
	FIFOOfEachClass Code = "fifo_of_each_class"
	FIFOTooLong     Code = "fifo_too_long"
	FIFOMissesGoal  Code = "fifo_misses_goal"
	SFQNoAQM        Code = "sfq_no_aqm"
)

// Why there are no classes, or not all that was asked of them.
const (
	ClassesUntold       Code = "classes_untold"
	ClassesOneQueue     Code = "classes_one_queue"
	ClassesNoRules      Code = "classes_no_rules"
	ClassesUnable       Code = "classes_unable"
	ClassesLeftOut      Code = "classes_left_out"
	ClassesNoMarks      Code = "classes_no_marks"
	ClassesNone         Code = "classes_none"
	OthersMarks         Code = "others_marks"
	RuleLeftOut         Code = "rule_left_out"
	RuleUploadAlone     Code = "rule_upload_alone"
	RuleOpenedOutside   Code = "rule_opened_outside"
	RuleTranslatedPorts Code = "rule_translated_ports"
	RuleByConnection    Code = "rule_by_connection"
	RuleTwoFamilies     Code = "rule_two_families"
	RuleCovered         Code = "rule_covered"
	MarksIgnored        Code = "marks_ignored"
	LimitLeftOut        Code = "limit_left_out"
	GuaranteeCut        Code = "guarantee_cut"
	GuaranteesShared    Code = "guarantees_shared"
	BandsLeast          Code = "bands_least"
	BandsIPv6           Code = "bands_ipv6"
	DomainsUnable       Code = "domains_unable"
)

// What judges how flows behave, and why not a BPF program.
const (
	NFTNotChosen    Code = "nft_not_chosen"
	BPFSlow         Code = "bpf_slow"
	ArrivesFirst    Code = "arrives_first"
	BPFClassifies   Code = "bpf_classifies"
	BPFLeftOut      Code = "bpf_left_out"
	BPFNotThere     Code = "bpf_not_there"
	BPFNeedsClasses Code = "bpf_needs_classes"
	BPFNeedsBoth    Code = "bpf_needs_both"
	BPFBesideNFT    Code = "bpf_beside_nft"
	BPFNeedsLAN     Code = "bpf_needs_lan"
)

// What each class is.
const (
	VoiceIs            Code = "voice_is"
	InteractiveIs      Code = "interactive_is"
	InteractiveThinned Code = "interactive_thinned"
	NormalIs           Code = "normal_is"
	SteadyIs           Code = "steady_is"
	BulkIs             Code = "bulk_is"
	VoiceByRule        Code = "voice_by_rule"
	NamesAndRule       Code = "names_and_rule"
	ClassByRule        Code = "class_by_rule"
	AcksAndRule        Code = "acks_and_rule"
	AcksTOSAndRule     Code = "acks_tos_and_rule"
	EverythingElse     Code = "everything_else"
	RuleIs             Code = "rule_is"
	MarksTrusted       Code = "marks_trusted"
	DomainsByFile      Code = "domains_by_file"
	DomainsByResolver  Code = "domains_by_resolver"
	RuleTakesAll       Code = "rule_takes_all"
)

// What pf's queues can't be told.
const (
	PfNoCoDel          Code = "pf_no_codel"
	PfNoECN            Code = "pf_no_ecn"
	PfNoOverhead       Code = "pf_no_overhead"
	PfClassesUnasked   Code = "pf_classes_unasked"
	PfClassesLost      Code = "pf_classes_lost"
	PfNoDomains        Code = "pf_no_domains"
	PfNoUnmarked       Code = "pf_no_unmarked"
	AltqClassesUnasked Code = "altq_classes_unasked"
	AltqClassesLost    Code = "altq_classes_lost"
	AltqRates          Code = "altq_rates"
	AltqRatesWhy       Code = "altq_rates_why"
	AltqNoDomains      Code = "altq_no_domains"
)

// What dummynet can't be told.
const (
	DummynetNoOverhead     Code = "dummynet_no_overhead"
	DummynetRates          Code = "dummynet_rates"
	DummynetRatesWhy       Code = "dummynet_rates_why"
	PfSenseClassesUnasked  Code = "pfsense_classes_unasked"
	DummynetClassesUnasked Code = "dummynet_classes_unasked"
	DummynetClassesLost    Code = "dummynet_classes_lost"
	DummynetNoDomains      Code = "dummynet_no_domains"
	DummynetNoHome         Code = "dummynet_no_home"
	DummynetControl        Code = "dummynet_control"
	ControlShaped          Code = "control_shaped"
	ControlFirst           Code = "control_first"
	PfSenseNotAlone        Code = "pfsense_not_alone"
	PfSenseClassesLost     Code = "pfsense_classes_lost"
	PfSenseNoDSCP          Code = "pfsense_no_dscp"
	PfSenseNoDirection     Code = "pfsense_no_direction"
	OPNsenseNoSCTP         Code = "opnsense_no_sctp"
	OPNsenseNamedDSCP      Code = "opnsense_named_dscp"
)

// What others can't be told.
const (
	RuleNoMAC             Code = "rule_no_mac"
	RuleNoBytes           Code = "rule_no_bytes"
	WholeKbit             Code = "whole_kbit"
	OpenWrtRatesWhy       Code = "openwrt_rates_why"
	ClearOSRatesWhy       Code = "clearos_rates_why"
	ClearOSClassesUnasked Code = "clearos_classes_unasked"
	ClearOSClassesLost    Code = "clearos_classes_lost"
	ClearOSNoDomains      Code = "clearos_no_domains"
	ClearOSNoDSCP         Code = "clearos_no_dscp"
	ClearOSNoIPv6         Code = "clearos_no_ipv6"
	ClearOSNoHomeDown     Code = "clearos_no_home_down"
	ClearOSHomeDownAlone  Code = "clearos_home_down_alone"
	ClearOSBands          Code = "clearos_bands"
	ClearOSBandsIPv6      Code = "clearos_bands_ipv6"
	ClearOSNotAlone       Code = "clearos_not_alone"
	ClearOSNames          Code = "clearos_names"
)
