package steer

// Measuring is what Measure makes of a line's configuration, for tests of their own time.
var Measuring = measuring
