package console

import (
	"context"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
)

// maxAge is how long a page may show a configuration that was read for an earlier one.
const maxAge = 10 * time.Second

// configurations has the configuration that was read last.
type configurations struct {
	mu     sync.Mutex
	last   *loaded
	readAt time.Time
}

// loaded is the configuration that the console shows. It is immutable.
type loaded struct {
	*resolve.CommandConfig

	// Unread says what of it is not known, as for lack of a right.
	Unread []error
}

// configuration returns what decides: the directory, what is active in the cluster, or both. Without either, as with a recording
// alone, it is nil.
func (c *console) configuration(ctx context.Context) (*loaded, error) {
	c.configurations.mu.Lock()
	defer c.configurations.mu.Unlock()
	if c.configurations.last != nil && c.now().Sub(c.configurations.readAt) < maxAge {
		return c.configurations.last, nil
	}
	last, err := c.loadConfiguration(ctx)
	if err != nil {
		return nil, err
	}
	c.configurations.last, c.configurations.readAt = last, c.now()
	return last, nil
}

func (c *console) loadConfiguration(ctx context.Context) (*loaded, error) {
	if c.isOffline() {
		if c.config == "" {
			return nil, nil //nolint:nilnil // there is none
		}
		documents, snapshot, found := config.CompileDir(c.config)
		if snapshot == nil {
			return nil, config.InvalidError(c.config, found)
		}
		return &loaded{CommandConfig: &resolve.CommandConfig{Config: documents, Snapshot: snapshot, Found: found}}, nil
	}
	source, err := c.Open(ctx, c.config)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	config, err := source.Load(nil)
	if err != nil {
		return nil, err
	}
	return &loaded{CommandConfig: config, Unread: source.Unread(config)}, nil
}
