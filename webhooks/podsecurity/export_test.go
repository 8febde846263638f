package podsecurity

// Fields are the fields that Decode reads.
var Fields = fields
