package console

import (
	"sync"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replicas"
)

// lazyMirror is the mirror of the replicas' recordings. It is made when a page needs it.
type lazyMirror struct {
	mu     sync.Mutex
	mirror *replicas.Mirror
	err    error
}

// isMirrored reports whether the recordings are those of the replicas.
func (c *console) isMirrored() bool { return !c.isOffline() && len(c.recordings) == 0 }

// lookAtRecordings is called by pages about recordings. For the next minute, those of the replicas are followed.
func (c *console) lookAtRecordings() {
	if !c.isMirrored() {
		return
	}
	c.mirror.mu.Lock()
	defer c.mirror.mu.Unlock()
	if c.mirror.mirror == nil {
		var cluster *replicas.Cluster
		if cluster, c.mirror.err = c.observer.connection(); c.mirror.err != nil {
			return
		}
		c.mirror.mirror = replicas.NewMirror(cluster, c.recordingPaths()[0], c.now)
	}
	c.mirror.mirror.Look(c.ctx, c.background.Go)
}

// mirrorText says what of the replicas' recordings is known, a line for each fact. It is empty if the recordings are those of --recording.
func (c *console) mirrorText() []string {
	if !c.isMirrored() {
		return nil
	}
	c.mirror.mu.Lock()
	defer c.mirror.mu.Unlock()
	if c.mirror.err != nil {
		return []string{explain(c.mirror.err)}
	}
	if c.mirror.mirror == nil {
		return nil
	}
	state := c.mirror.mirror.State()
	missing := explainAll(state.Problems)
	state.Problems = nil
	lines := state.Text()
	for _, text := range missing {
		lines = append(lines, "Not read: "+text)
	}
	return lines
}
