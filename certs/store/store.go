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
var ErrConflict = errors.New("somebody else has changed it")

// Record is what a Store holds: the data of a Secret, or files of a directory.
type Record struct {
	// Exists reports whether there is a place for data. There can be one without
	// data: a Secret that was made in advance, so that creating it needs no right.
	Exists bool
	// Data is by the keys of package rotation, and others that somebody put there.
	Data map[string][]byte
	// Version changes with every change of what is stored. It is opaque.
	Version string
}

// Store is where the state of a rotation is kept, which all replicas share. All
// methods are safe for concurrent use. An error names the place, the problem and
// the remedy.
type Store interface {
	// Load reads what is there now, not from a cache.
	Load(ctx context.Context) (Record, error)
	// Save puts data in the place of what Load returned: if that is not there any
	// more, it changes nothing and the error is ErrConflict. Of the keys of package
	// rotation those that the data lacks are taken away; keys of others stay.
	Save(ctx context.Context, old Record, data map[string][]byte) error
	// Watch calls changed soon after every change, and when one may have been
	// missed, from one goroutine, until the context ends; it returns then and not
	// before. Whoever depends on it looks from time to time too.
	Watch(ctx context.Context, changed func())
	// String names the place as messages do: "Secret gatehouse-system/gatehouse-ca".
	String() string
}

// Replicas is where replicas tell each other what they serve. All methods are
// safe for concurrent use.
type Replicas interface {
	// Report writes down what this replica serves, and that it lives. The caller
	// does so at every change and at least every ReportInterval. Report.Seen is set
	// by the implementation. It leaves the reports of other processes alone, whatever
	// their replicas are called, but for those of its predecessors that are dead.
	Report(ctx context.Context, r *rotation.Report) error
	// List reads all reports, from where they are kept and not from a cache, in the
	// order of their names. There are two of a name while two processes have it.
	List(ctx context.Context) ([]rotation.Report, error)
	// Leave takes back this process's report: it serves no more.
	Leave(ctx context.Context) error
}

var (
	_ Store    = (*MemoryStore)(nil)
	_ Replicas = (*MemoryReplicas)(nil)
)

// stateManager is whose fields ours are in metadata.managedFields of Secrets and
// Leases.
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
	return fmt.Sprintf("%s: %s, so it is somebody else's and is left alone (hint: %s)", e.Place, e.Problem, e.Remedy)
}

// PollInterval is how often the clock and the store are looked at, and
// rotateInterval that in the first minutes of a phase of a rotation: one that
// lasts waits for a replica that is away, for days maybe.
const PollInterval = 10 * time.Second

// ReplicaName is the name of this replica: that of its pod, which is its host
// name.
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
