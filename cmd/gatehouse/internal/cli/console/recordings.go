package console

import (
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replicas"
)

// isMirrored reports whether the recordings are those of the replicas.
func (c *console) isMirrored() bool { return !c.isOffline() && len(c.recordings) == 0 }

// lookAtRecordings is called by pages about recordings. For the next minute, those of the replicas are followed.
func (c *console) lookAtRecordings() {
	if !c.isMirrored() {
		return
	}
	o := &c.observer
	cluster, err := o.connection(c.ctx, c.flags)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err = err; err != nil {
		return
	}
	if o.mirror == nil {
		o.mirror = replicas.NewMirror(cluster, c.recordingPaths()[0], c.now)
	}
	o.mirror.Look(c.ctx, c.background.Go)
}

// mirrorText says what of the replicas' recordings is known, a line for each fact. It is empty if the recordings are those of --recording.
func (c *console) mirrorText() []string {
	c.observer.mu.Lock()
	defer c.observer.mu.Unlock()
	switch {
	case c.observer.err != nil:
		return []string{explain(c.observer.err)}
	case c.observer.mirror == nil:
		return nil
	}
	state := c.observer.mirror.State()
	missing := explainAll(state.Problems)
	state.Problems = nil
	lines := state.Text()
	for _, text := range missing {
		lines = append(lines, "Not read: "+text)
	}
	return lines
}
