package reason

// What a test found: its verdict, sentence by sentence.
const (
	AsWritten         Code = "as_written" // words of elsewhere
	NotValid          Code = "not_valid"
	NotValidFor       Code = "not_valid_for" // the reasons follow
	CertainRise       Code = "certain_rise"
	CertainF          Code = "certain_f" // a rise that is a grade F whatever the rest is
	AlsoIn            Code = "also_in"
	MoreVerbose       Code = "more_verbose"
	LatenessBound     Code = "lateness_bound"
	WhatToDo          Code = "what_to_do"
	MoreReasons       Code = "more_reasons"
	OneMoreReason     Code = "one_more_reason"
	Interrupted       Code = "interrupted" // in a phase; those before it are whole
	NothingLoaded     Code = "nothing_loaded"
	RoundTripDownload Code = "round_trip_download"
	RoundTripUpload   Code = "round_trip_upload"
	RoundTripBoth     Code = "round_trip_both"
	RoundTripLoaded   Code = "round_trip_loaded"
	ProbesLost        Code = "probes_lost"
	ProbesLostAudibly Code = "probes_lost_audibly" // enough to break up calls
)

// What a load did not fill.
const (
	Starved       Code = "starved" // of acknowledgements
	OneFilled     Code = "one_filled"
	NotFilled     Code = "not_filled"
	NotFilledEach Code = "not_filled_each"
)

// What could not be judged, or is to be known besides.
const (
	CPUNotJudged      Code = "cpu_not_judged"
	CPUNotTold        Code = "cpu_not_told" // by a browser
	OverWiFi          Code = "over_wifi"
	PublicServer      Code = "public_server"      // and how far it is, and whose terms it has
	RoundTripsOnly    Code = "round_trips_only"   // the probes do not tell the two ways apart
	RequestsAsProbes  Code = "requests_as_probes" // small ones over TCP
	ProbesOverTCP     Code = "probes_over_tcp"
	ProbesAsDatagrams Code = "probes_as_datagrams"
	OneConnection     Code = "one_connection"
)

// Why a tuning was kept, or not.
const (
	TuneBetter      Code = "tune_better"
	TuneNoBetter    Code = "tune_no_better"
	TuneTooDear     Code = "tune_too_dear"
	TuneGoalMissed  Code = "tune_goal_missed"
	TuneGoodAlready Code = "tune_good_already"
)

// The table of a test.
const (
	TestHead  Code = "test_head"
	LostInAll Code = "lost_in_all"
	GradeLine Code = "grade_line"
	WorstLoad Code = "worst_load"
	// Quality of Outcome by use, and how long the delay took to fall.
	OutcomeLine  Code = "outcome_line"
	RecoveryLine Code = "recovery_line"
	QueueLine    Code = "queue_line"
	BesideLine   Code = "beside_line"
	OnLoadLine   Code = "on_load_line"
	MedianOf     Code = "median_of"
	NoteLine     Code = "note_line"
	InPhase      Code = "in_phase"
)

// The table of a tuning, and of before and after.
const (
	LineCarries    Code = "line_carries"
	ShapedTo       Code = "shaped_to"
	KeptLine       Code = "kept_line"
	TableGlossary  Code = "table_glossary"
	Conditions     Code = "conditions"
	ChangeMore     Code = "change_more"
	ChangeLess     Code = "change_less"
	ChangeOnlyMore Code = "change_only_more" // no ratio can be told
	ChangeOnlyLess Code = "change_only_less" // no ratio can be told
	ChangeWorse    Code = "change_worse"
	OnlyFilled     Code = "only_filled"
)

// What changed from before to after.
const (
	Incomparable      Code = "incomparable"
	HardlyChanged     Code = "hardly_changed"
	GotWorse          Code = "got_worse"
	CallsWaited       Code = "calls_waited"
	CallsWaitedOnce   Code = "calls_waited_once"
	DownloadSpeed     Code = "download_speed"
	UploadSpeed       Code = "upload_speed"
	SpeedLost         Code = "speed_lost"
	ButRose           Code = "but_rose"
	AlsoRose          Code = "also_rose"
	NothingMeasured   Code = "nothing_measured"
	NoLatencyMeasured Code = "no_latency_measured"
	IsInvalid         Code = "is_invalid"
	BothInvalid       Code = "both_invalid"
	BeforeInvalid     Code = "before_invalid"
	AfterInvalid      Code = "after_invalid"
	NoReasonKept      Code = "no_reason_kept"
	NoLoadBefore      Code = "no_load_before"
	OnlyBefore        Code = "only_before"
	NoAnswerEither    Code = "no_answer_either"
	NoAnswerBefore    Code = "no_answer_before"
	NoAnswerAfter     Code = "no_answer_after"
)
