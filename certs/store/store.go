// Package store keeps what the replicas share: the state of a CA rotation (Store) and
// the heartbeat of each replica (Replicas). Both are kept in memory, in a directory of
// one machine, or in an API server: a Secret and Leases.
package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// ReportInterval is how often a replica sends a heartbeat. After four times as long
// without one it is unreachable.
const ReportInterval = 15 * time.Second

// ErrConflict means that the record has changed since it was loaded. The remedy is to
// load it again.
var ErrConflict = errors.New("another client has changed it")

// Record is what a Store holds: the data of a Secret, or files of a directory.
type Record struct {
	// Exists reports whether the object exists. It may have no data: a Secret that was made
	// in advance, so that the right to create one is not needed.
	Exists bool
	// Data has the keys of package rotation, and others that other clients wrote.
	Data map[string][]byte
	// Version changes with every change of what is stored. It is opaque.
	Version string
}

// Store keeps the state of a rotation, which all replicas share. All methods are safe for
// concurrent use. An error names the place, the problem and the remedy.
type Store interface {
	// Load reads the record, not from a cache.
	Load(ctx context.Context) (Record, error)
	// Save replaces the record that Load returned, or returns ErrConflict if it has changed.
	// It removes keys of package rotation that the data lacks; other keys stay.
	Save(ctx context.Context, old Record, data map[string][]byte) error
	// Watch calls changed soon after every change, and when one may have been missed, from
	// one goroutine, until the context ends. The caller should poll as well.
	Watch(ctx context.Context, changed func())
	// String returns the place for messages: "Secret gatehouse-system/gatehouse-ca".
	String() string
}

// Replicas keeps the heartbeats of replicas. All methods are safe for concurrent use.
type Replicas interface {
	// Report stores the heartbeat of this replica, at every change and at least every
	// ReportInterval. The implementation sets Report.Seen. It replaces the report of an
	// earlier process of the same name.
	Report(ctx context.Context, r *rotation.Report) error
	// List reads all reports, not from a cache, in the order of their names.
	List(ctx context.Context) ([]rotation.Report, error)
	// Leave removes the report of this replica.
	Leave(ctx context.Context) error
}

var (
	_ Store    = (*MemoryStore)(nil)
	_ Replicas = (*MemoryReplicas)(nil)
)

// stateManager is the field manager of Secrets and Leases.
const stateManager = "gatehouse"

// ForeignError means that the place of a Store holds something that Gatehouse did not
// write. It is left unchanged.
type ForeignError struct {
	// Place is what the Store is called, and Problem what is there instead.
	Place, Problem string
	// Remedy says what to do about it.
	Remedy string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s: %s, so Gatehouse did not create it and does not change it (hint: %s)", e.Place, e.Problem, e.Remedy)
}

// PollInterval is how often the state is reconciled.
const PollInterval = 10 * time.Second

// ReplicaName returns the name of this replica: that of its pod, which is its host name,
// unless one is given.
func ReplicaName(given string) string {
	if given != "" {
		return given
	}
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "gatehouse"
	}
	return strings.ToLower(name)
}
