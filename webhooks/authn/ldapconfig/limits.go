package ldapconfig

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// Defaults of a configuration.
const (
	defaultTimeout        = 5 * time.Second
	DefaultMaxConnections = 8
	DefaultMaxGroups      = 500
	DefaultNameAttribute  = "cn"
)

// What a configuration may say at most. Nobody waits a minute for a login; a
// directory's service is shared with others; and each group is part of every
// login token and of every request that the API server authorizes.
const (
	maxServers     = 16
	leastTimeout   = 100 * time.Millisecond
	maxTimeout     = time.Minute
	maxConnections = 1000
	maxMaxGroups   = 10000
)

// Timeout returns the time that one operation of a directory may take.
func Timeout(config *v1alpha1.Directory) time.Duration {
	if config.Timeout == nil {
		return defaultTimeout
	}
	return config.Timeout.Duration
}
