package rotation

import "time"

// The usual lives of certificates.
const (
	DefaultCALife   = 365 * 24 * time.Hour
	DefaultLeafLife = 7 * 24 * time.Hour
)
