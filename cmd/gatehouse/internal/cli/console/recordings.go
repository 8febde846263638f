package console

import (
	"context"
	"slices"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
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

// canReplay reports whether there are recordings: those of the command line, or of the replicas.
func (c *console) canReplay() bool { return len(c.recordingPaths()) > 0 }

// recordingOf returns the recording that a form names, all of them for "", and its arguments for a command that a user runs. It can name none
// but those of the command line.
func (c *console) recordingOf(name string) (paths, words []string, err error) {
	paths = c.recordingPaths()
	switch {
	case c.isMirrored() && name == "":
		c.lookAtRecordings()
		if sources, _ := replay.Sources(paths); len(sources) == 0 {
			err = web.BadRequest("no recording of a replica has been read yet (hint: try again, or look at the page Decisions)")
		}
		return paths, []string{"RECORDING"}, err
	case len(paths) == 0:
		return nil, nil, web.BadRequest("there is no recording to replay (hint: gatehouse console --recording FILE)")
	case name == "":
		return paths, paths, nil
	case !slices.Contains(c.recordings, name):
		return nil, nil, web.NotFound("%q is not a --recording", cli.InertName(name))
	default:
		return []string{name}, []string{name}, nil
	}
}

// replayWords returns the command that replays recordings. Policies and profiles decide nothing about logins.
func replayWords(paths []string, configuration ...string) []string {
	return slices.Concat([]string{"replay"}, configuration, []string{"--endpoint", "mutate", "--endpoint", "validate"}, paths)
}

// startTryReplay begins a replay of the recording of the form with the candidate.
func (c *console) startTryReplay(l *loaded, form *tryForm) (*web.Job, error) {
	paths, _, err := c.recordingOf(form.Recording)
	if err != nil {
		return nil, err
	}
	return c.startCommand("Replay of the candidate", func(context.Context) ([]string, func(string) string, func(), error) {
		x, err := c.newCandidate(l, form.Documents, true)
		if err != nil {
			return nil, nil, nil, err
		}
		return replayWords(paths, "--config", x.all), x.cleanText, x.remove, nil
	}), nil
}
