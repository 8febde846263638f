package ldap

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// What a configuration has that does not say.
const (
	defaultTimeout        = 5 * time.Second
	defaultMaxConnections = 8
	defaultMaxGroups      = 500
	defaultNameAttribute  = "cn"
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

func timeoutOf(config *v1alpha1.Directory) time.Duration {
	if config.Timeout == nil {
		return defaultTimeout
	}
	return config.Timeout.Duration
}
