package plan

// What tests in package plan_test look at.
const ManyDownloads = manyDownloads
