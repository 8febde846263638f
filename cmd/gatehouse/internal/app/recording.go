package app

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/events"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// RecordingOptions are the flags of serve about recording.
type RecordingOptions struct {
	dir, config string
	maxBytes    string
	maxAge      time.Duration

	// changed reports whether a flag was set on the command line.
	changed func(name string) bool
}

const (
	// minRecordBytes and minRecordAge are the smallest --record-max-bytes and --record-max-age: a
	// directory has sixteen segments.
	minRecordBytes = 16 << 20
	minRecordAge   = time.Minute
)

// addFlags adds the flags to a command.
func (f *RecordingOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.changed = flags.Changed
	flags.StringVar(&f.dir, "record", "", "directory in which to record reviews and their answers, for 'gatehouse replay'; secret values are replaced by a mark, and tokens are not recorded (default: no recording)")
	flags.StringVar(&f.maxBytes, "record-max-bytes", "1Gi", "maximum size of the recording, such as 500Mi or 10Gi; the oldest reviews are removed")
	flags.DurationVar(&f.maxAge, "record-max-age", 7*24*time.Hour, "maximum age of the recording, such as 12h or 30d; older reviews are removed")
	flags.StringVar(&f.config, "record-config", "", "file with a RecordingConfiguration, which sets the share of reviews to record and adds to what is redacted (default: all reviews)")
	_ = cmd.MarkFlagDirname("record")
	_ = cmd.MarkFlagFilename("record-config", "yaml", "yml", "json")
}

// Validate returns all problems of the flags. Documents is the directory of --config.
func (f *RecordingOptions) Validate(documents string) []error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if f.dir == "" {
		for _, flag := range []string{"record-max-bytes", "record-max-age", "record-config"} {
			if f.changed(flag) {
				problem("--%s needs --record", flag)
			}
		}
		if f.changed("record") {
			problem("--record: must not be empty (hint: omit the flag, or check the variable that its value comes from)")
		}
		return problems
	}
	if documents != "" && isBelow(f.dir, documents) {
		problem("--record %q: must not be in the directory of --config, whose files are documents (hint: use another directory)", f.dir)
	}
	if bytes, err := f.bytes(); err != nil || bytes < minRecordBytes {
		problem("--record-max-bytes %.100q: must be a quantity of at least %dMi (hint: 1Gi)", f.maxBytes, minRecordBytes>>20)
	}
	if f.maxAge < minRecordAge {
		problem("--record-max-age %s: must be at least %s (hint: 168h)", f.maxAge, minRecordAge)
	}
	return problems
}

// bytes returns --record-max-bytes.
func (f *RecordingOptions) bytes() (int64, error) {
	quantity, err := resource.ParseQuantity(f.maxBytes)
	return quantity.Value(), err //nolint:wrapcheck // it is replaced
}

// isBelow reports whether a path is a directory or below it.
func isBelow(path, dir string) bool {
	absolute := func(path string) string {
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			path = resolved
		}
		if whole, err := filepath.Abs(path); err == nil {
			path = whole
		}
		return path
	}
	relative, err := filepath.Rel(absolute(dir), absolute(path))
	return err == nil && relative != ".." && !strings.HasPrefix(relative, ".."+string(filepath.Separator))
}

// recording records the reviews of the server. A nil recording records nothing.
type recording struct {
	recorder *record.Recorder
	redactor *record.Redactor
	log      *slog.Logger
}

// recording returns what records reviews, nil without --record. Replica is the name of this process, and
// namespace that of its pod. Access is to the cluster, nil without one.
func (f *RecordingOptions) recording(ctx context.Context, replica, namespace string, access *rest.Config, log *slog.Logger) (*recording, error) {
	if f.dir == "" {
		return nil, nil //nolint:nilnil // nothing is recorded
	}
	rules, err := f.rules(log)
	if err != nil {
		return nil, err
	}
	notify, err := recordingEvents(ctx, replicaName(replica), namespace, access, log)
	if err != nil {
		return nil, err
	}
	size, _ := f.bytes() // checked with the flags
	log.Info("recording enabled", "dir", f.dir, "maxBytes", size, "maxAge", f.maxAge.String())
	return &recording{log: log, redactor: rules.Redactor, recorder: record.New(record.Options{
		Dir: f.dir, Replica: replicaName(replica), Rules: rules, MaxBytes: size, MaxAge: f.maxAge, Notify: notify, Log: log,
	})}, nil
}

func (f *RecordingOptions) rules(log *slog.Logger) (record.Rules, error) {
	rules, found := record.ReadRules(f.config)
	var all []string
	for _, one := range found {
		if one.Severity == diagnostic.Error {
			all = append(all, one.String())
		} else {
			log.Warn("--record-config", "warning", one.String())
		}
	}
	if len(all) > 0 {
		return rules, fmt.Errorf("--record-config: the configuration is invalid:\n%s", strings.Join(all, "\n"))
	}
	return rules, nil
}

// The reasons of Events about a recording.
const (
	reasonRecordingFailed   = "RecordingFailed"
	reasonRecordingRestored = "RecordingRestored"
)

// recordingEvents returns what writes Events about the pod when recording fails and when it goes on. It is
// nil without a cluster.
func recordingEvents(ctx context.Context, replica, namespace string, access *rest.Config, log *slog.Logger) (func(error), error) {
	if access == nil {
		return nil, nil //nolint:nilnil // nobody reads Events
	}
	access = rest.CopyConfig(access)
	access.UserAgent = "gatehouse-recording/" + build.Version()
	client, err := certs.NewClient(access)
	if err != nil {
		return nil, err
	}
	writer := events.New(context.WithoutCancel(ctx), events.Config{Client: client.CoreV1(), Replica: replica, Log: log})
	pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: replica}
	return func(err error) {
		if err != nil {
			writer.Write(pod, true, reasonRecordingFailed, "reviews are answered but not recorded: "+err.Error())
			return
		}
		writer.Write(pod, false, reasonRecordingRestored, "reviews are recorded again")
	}, nil
}

// activated stores a configuration that becomes the active one.
func (r *recording) activated(c *config.Config) {
	r.recorder.Configuration(c.Digest, func() string {
		documents, err := c.Encode(r.redactor.Object)
		if err != nil {
			r.log.Error("the recording lacks the configuration", "digest", c.Digest, "error", err.Error())
		}
		return string(documents)
	})
}

// begin returns what begins to record a review, nil if nothing is recorded.
func (r *recording) begin() func() *record.Trace {
	if r == nil {
		return nil
	}
	return r.recorder.Begin
}

// details returns the condition of the recording for /readyz?verbose.
func (r *recording) details() []string {
	if r == nil {
		return nil
	}
	s := r.recorder.Stats()
	if s.Err == nil {
		var dropped int64
		for _, n := range s.Dropped {
			dropped += n
		}
		return []string{fmt.Sprintf("Recording=True: %d reviews since the start, %d dropped", s.Recorded, dropped)}
	}
	return []string{fmt.Sprintf("Recording=False since %s: %s (hint: reviews are answered all the same; the recording goes on by itself)",
		s.Since.UTC().Format(time.RFC3339), singleLine(s.Err))}
}

func singleLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// run writes until the context ends.
func (r *recording) run(ctx context.Context, group *errgroup.Group, registry *prometheus.Registry) {
	if r == nil {
		return
	}
	registry.MustRegister(record.NewCollector(r.recorder))
	group.Go(func() error {
		r.recorder.Run(ctx)
		return nil
	})
}
