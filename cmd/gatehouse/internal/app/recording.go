package app

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/internal/patherr"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// RecordingOptions are the flags of serve about recording.
type RecordingOptions struct {
	dir, config string
	maxBytes    string
	maxAge      time.Duration
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
	flags.StringVar(&f.dir, "record", "", "directory in which to record reviews and their answers, for 'gatehouse replay'; secret values are replaced by a mark, and tokens are not recorded (default: no recording)")
	flags.StringVar(&f.maxBytes, "record-max-bytes", "1Gi", "maximum size of the recording, such as 500Mi or 10Gi; the oldest reviews are removed")
	flags.DurationVar(&f.maxAge, "record-max-age", 7*24*time.Hour, "maximum age of the recording, such as 12h or 30d; older reviews are removed")
	flags.StringVar(&f.config, "record-config", "", "file with a RecordingConfiguration, which sets the share of reviews to record and adds to what is redacted (default: all reviews)")
}

// validate adds the problems of the flags. Documents is the directory of --config.
func (f *RecordingOptions) validate(p *problems, documents string) {
	if f.dir == "" {
		p.needs(false, "--record", "record-max-bytes", "record-max-age", "record-config")
		p.empty("record", true)
		return
	}
	if documents != "" && patherr.IsBelow(f.dir, documents) {
		p.add("--record %q: must not be in the directory of --config, whose files are documents (hint: use another directory)", f.dir)
	}
	if bytes, err := f.bytes(); err != nil || bytes < minRecordBytes {
		p.add("--record-max-bytes %.100q: must be a quantity of at least %dMi (hint: 1Gi)", f.maxBytes, minRecordBytes>>20)
	}
	if f.maxAge < minRecordAge {
		p.add("--record-max-age %s: must be at least %s (hint: 168h)", f.maxAge, minRecordAge)
	}
}

// bytes returns --record-max-bytes.
func (f *RecordingOptions) bytes() (int64, error) {
	quantity, err := resource.ParseQuantity(f.maxBytes)
	return quantity.Value(), err //nolint:wrapcheck // it is replaced
}

// addRecording adds what records reviews.
func (w *wiring) addRecording(context.Context) error {
	f := &w.Recording
	if f.dir == "" {
		return nil
	}
	rules, err := f.rules(w.log)
	if err != nil {
		return err
	}
	size, _ := f.bytes() // checked with the flags
	// Logged when serve starts with --record.
	w.log.Info("recording enabled", "dir", f.dir, "maxBytes", size, "maxAge", f.maxAge.String())
	recorder := record.New(record.Options{
		Dir: f.dir, Replica: replicaName(w.replica), Rules: rules, MaxBytes: size, MaxAge: f.maxAge, Log: w.log,
	})
	w.reviews.Begin = recorder.Begin
	activated := w.current.Activated
	w.current.Activated = func(c *config.Config) {
		activated(c)
		recorder.Configuration(c.Digest, func() string {
			documents, err := c.Encode(rules.Redactor.Object)
			if err != nil {
				// Logged when a configuration cannot be written into the recording, so that a replay cannot compare with it.
				w.log.Error("the recording lacks the configuration", "digest", c.Digest, "error", err.Error())
			}
			return string(documents)
		})
	}
	w.add(part{metrics: record.NewCollector(recorder), run: endless(recorder.Run), details: func() []string { return []string{recordingDetails(recorder.Stats())} }})
	return nil
}

func (f *RecordingOptions) rules(log *slog.Logger) (record.Rules, error) {
	rules, found := record.ReadRules(f.config)
	var all []string
	for _, one := range found {
		if one.Severity == diagnostic.Error {
			all = append(all, one.String())
		} else {
			// Logged when serve starts, for each doubtful line of the file of --record-config.
			log.Warn("--record-config", "warning", one.String())
		}
	}
	if len(all) > 0 {
		return rules, fmt.Errorf("--record-config: the configuration is invalid:\n%s", strings.Join(all, "\n"))
	}
	return rules, nil
}

// recordingDetails returns the condition of the recording for /readyz?verbose.
func recordingDetails(s record.Stats) string {
	if s.Err != nil {
		return fmt.Sprintf("Recording=False since %s: %s (hint: reviews are answered all the same; the recording goes on by itself)",
			s.Since.UTC().Format(time.RFC3339), strings.ReplaceAll(s.Err.Error(), "\n", "; "))
	}
	var dropped int64
	for _, n := range s.Dropped {
		dropped += n
	}
	return fmt.Sprintf("Recording=True: %d reviews since the start, %d dropped", s.Recorded, dropped)
}
