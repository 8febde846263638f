package console

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// certsStatus is the output of certs status, as far as it is shown.
type certsStatus struct {
	Outcome  string     `json:"outcome"`
	Store    string     `json:"store"`
	Phase    string     `json:"phase"`
	Since    *time.Time `json:"since"`
	Cause    string     `json:"cause"`
	Next     *certsNext `json:"next"`
	Findings []struct {
		Level, Object, Message, Remedy string
	} `json:"findings"`
	Authorities []struct {
		Role, Subject, ID string
		NotAfter          time.Time
	} `json:"authorities"`
	Replicas []struct {
		Name, Role string
		NotAfter   *time.Time
		Seen       *time.Time
		Away       bool
	} `json:"replicas"`
	Webhooks []certsWebhook `json:"webhooks"`
}

// certsNext is the next step of a rotation.
type certsNext struct {
	What, When string
	At         *time.Time
	WaitsFor   []string
}

// certsWebhook is what a webhook trusts.
type certsWebhook struct {
	Object, Webhook, Outcome string
	Trusts                   []struct {
		Role, ID, Subject string
		NotAfter          time.Time
	}
	Lacks, Refuses []string
}

// certificateRow is a certificate that a replica uses, from its metrics.
type certificateRow struct {
	Replica, Subject string
	Ends             time.Time
	Soon             bool
}

// certificatesData is what the part about certificates shows.
type certificatesData struct {
	Status *certsStatus
	Rows   []certificateRow
	// Phases are those of the CA rotation by the metrics, with the replicas, and Untrusted the webhook configurations that do not
	// trust a replica.
	Phases, Untrusted []string
}

// mayNot matches what certs status says about a missing right.
var mayNot = regexp.MustCompile(`may not "([a-z]+)" ([a-z.]+)`)

// certsWords returns the command that shows certificates.
func (c *console) certsWords() []string {
	return append([]string{"certs", "status"}, c.clusterWords()...)
}

// certsStatus returns what certs status prints.
func (c *console) certsStatus(r *http.Request) (*certsStatus, []string) {
	status := &certsStatus{}
	if err := c.execute(r.Context(), nil, append(c.certsWords(), "-o", "json")...).decode(status); err != nil {
		return nil, []string{explain(err)}
	}
	var notes []string
	findings := status.Findings[:0]
	for _, f := range status.Findings {
		if right, ok := missingRight(f.Message); ok {
			notes = append(notes, "the right to "+right+" is missing")
			continue
		}
		if found := mayNot.FindStringSubmatch(f.Message); found != nil {
			notes = append(notes, "the right to "+found[1]+" "+found[2]+" is missing: "+f.Object)
			continue
		}
		findings = append(findings, f)
	}
	status.Findings = findings
	slices.Sort(notes)
	return status, slices.Compact(notes)
}

func (c *console) showCertificates(r *http.Request) (partData, error) {
	data := &certificatesData{}
	done := make(chan []string, 1)
	go func() {
		status, notes := c.certsStatus(r)
		data.Status = status
		done <- notes
	}()
	s, notes, err := c.look(r.Context())
	if err != nil {
		notes = append(notes, explain(err))
	} else {
		data.fromMetrics(s)
	}
	return partData{Data: data, Notes: append(<-done, notes...), Command: c.certsWords()}, nil
}

// fromMetrics adds what every replica says about its certificates.
func (d *certificatesData) fromMetrics(s *sample) {
	phases := map[string][]string{}
	var order []string
	for _, replica := range s.names() {
		m := s.metrics[replica]
		for _, one := range m.Series("gatehouse_certificate_not_after_timestamp_seconds") {
			row := certificateRow{Replica: replica, Subject: one.Labels["subject"], Ends: secondsTime(one.Value)}
			row.Soon = row.Ends.Sub(s.at) < soonOf(row.Subject)
			d.Rows = append(d.Rows, row)
		}
		for _, one := range m.Series("gatehouse_ca_rotation_phase") {
			if phase := one.Labels["phase"]; one.Value == 1 {
				if phases[phase] == nil {
					order = append(order, phase)
				}
				phases[phase] = append(phases[phase], replica)
			}
		}
	}
	for _, phase := range order {
		d.Phases = append(d.Phases, phase+": "+strings.Join(phases[phase], ", "))
	}
	d.Untrusted = gauge("gatehouse_ca_bundle_trusted", isZero, "kind", "name")(s)
}

// soonOf returns how long before its end a certificate needs attention, as the alerts have it.
func soonOf(subject string) time.Duration {
	const serving, authority = 36 * time.Hour, 30 * day
	if subject == "serving certificate" {
		return serving
	}
	return authority
}

// durationText returns a duration for people, without what is too small to matter.
func durationText(d time.Duration) string {
	switch {
	case d < time.Minute:
		return cli.FormatDuration(d.Round(time.Second))
	case d < time.Hour:
		return cli.FormatDuration(d.Round(time.Minute))
	case d < 2*day:
		return cli.FormatDuration(d.Round(time.Hour))
	default:
		return cli.FormatDuration(d.Truncate(day))
	}
}

// in returns how far a time is from now, for people.
func (c *console) in(t time.Time) string {
	if left := t.Sub(c.now()); left > 0 {
		return "in " + durationText(left)
	}
	return "ended"
}

// ago returns how long ago a time is.
func (c *console) ago(t time.Time) string { return durationText(max(0, c.now().Sub(t))) + " ago" }
