package console

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// alert is a rule of manifests/monitoring/prometheusrule.yaml that one sample of all replicas decides.
type alert struct {
	name, severity, summary string
	// wait is how long the condition must hold until the alert fires.
	wait time.Duration
	// condition returns what the alert is about, nothing if it would not fire.
	condition func(*sample) []string
}

const day = 24 * time.Hour

// sampledAlerts returns the rules that compare gauges. Rules with rates need Prometheus.
func sampledAlerts() []alert {
	return []alert{
		{"GatehouseConfigurationNotUsed", "warning", "the configuration of Gatehouse has errors", 5 * time.Minute, gauge("gatehouse_config_last_load_successful", isZero)},
		{"GatehouseConfigurationFileEmptied", "warning", "a configuration file has lost all its documents", time.Minute, gauge("gatehouse_config_emptied_files", isPositive)},
		{"GatehouseConfigurationsDiffer", "warning", "replicas of Gatehouse have different configurations", 10 * time.Minute, configurationsDiffer},
		{"GatehouseCustomResourcesNotUsed", "warning", "custom resources have errors and are not active", 5 * time.Minute, customResourcesNotUsed},
		{"GatehouseClusterNotRead", "warning", "Gatehouse cannot read objects of the cluster", 5 * time.Minute, gauge("gatehouse_cluster_synced", isZero, "kind")},
		{"GatehouseStatusNotWritten", "info", "the status of custom resources is not written", 15 * time.Minute, statusNotWritten},
		{"GatehouseAuditTooOld", "warning", "the audit of existing objects is old", time.Hour, auditTooOld},
		{"GatehouseCertificateEnds", "critical", "the serving certificate expires soon", 0, certificateEnds(36*time.Hour, func(subject string) bool { return subject == "serving certificate" })},
		{"GatehouseCAEnds", "warning", "a CA expires soon", 0, certificateEnds(30*day, func(subject string) bool { return strings.HasSuffix(subject, " CA") })},
		{"GatehouseRenewalRefused", "warning", "the new serving certificate is rejected", 15 * time.Minute, gauge("gatehouse_certificate_renewal_refused", isPositive)},
		{"GatehouseNotTrusted", "critical", "a webhook configuration does not trust the serving certificate", time.Minute, gauge("gatehouse_ca_bundle_trusted", isZero, "kind", "name")},
		{"GatehouseRotationIsStuck", "warning", "the CA rotation is stuck", 2 * time.Hour, rotationPhase("Publish", "Hold")},
		{"GatehouseRotationIsStuck", "warning", "the CA rotation is stuck", 8 * day, rotationPhase("Activate")},
		{"GatehouseCAStoreFails", "warning", "the CA state cannot be read or written", 10 * time.Minute, gauge("gatehouse_ca_store_last_successful", isZero)},
		{"GatehouseReplicasDisagree", "warning", "replicas have different CA states", 15 * time.Minute, replicasDisagree},
		{"GatehouseIssuerWithoutKeys", "warning", "the keys of an issuer are missing", 10 * time.Minute, gauge("gatehouse_issuer_keys", isZero, "issuer")},
		{"GatehouseMemoryNearLimit", "warning", "Gatehouse is near its memory limit", 10 * time.Minute, memoryNearLimit},
		{"GatehouseRecordingFails", "warning", "reviews are not recorded", 10 * time.Minute, gauge("gatehouse_record_failing_since_timestamp_seconds", isPositive)},
	}
}

func isZero(v float64) bool     { return v == 0 }
func isPositive(v float64) bool { return v > 0 }

// gauge returns the condition of an alert for each replica, and for each value of labels. A replica is named once for the same labels.
func gauge(name string, holds func(float64) bool, labels ...string) func(*sample) []string {
	return func(s *sample) (about []string) {
		for _, replica := range s.names() {
			for _, one := range s.metrics[replica].Series(name) {
				if !holds(one.Value) {
					continue
				}
				words := []string{"replica " + replica}
				for _, label := range labels {
					words = append(words, label+" "+one.Labels[label])
				}
				about = append(about, strings.Join(words, ", "))
			}
		}
		return about
	}
}

// digests returns the replicas by the digest of their configuration.
func (s *sample) digests() map[string][]string {
	out := map[string][]string{}
	for _, replica := range s.names() {
		for _, one := range s.metrics[replica].Series("gatehouse_config_info") {
			out[one.Labels["digest"]] = append(out[one.Labels["digest"]], replica)
		}
	}
	return out
}

func configurationsDiffer(s *sample) (about []string) {
	digests := s.digests()
	if len(digests) < 2 {
		return nil
	}
	for _, digest := range slices.Sorted(maps.Keys(digests)) {
		about = append(about, shortDigest(digest)+": "+strings.Join(digests[digest], ", "))
	}
	return about
}

// shortDigest returns enough of a digest to distinguish configurations.
func shortDigest(digest string) string {
	const enough = 12
	return digest[:min(enough, len(digest))]
}

func customResourcesNotUsed(s *sample) (about []string) {
	most := map[string]float64{}
	for _, m := range s.metrics {
		for _, one := range m.Series("gatehouse_custom_resources") {
			if state := one.Labels["state"]; (state == "previous" || state == "unused") && one.Value > 0 {
				name := one.Labels["kind"] + ", " + state
				most[name] = max(most[name], one.Value)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(most)) {
		about = append(about, fmt.Sprintf("%s: %.0f", name, most[name]))
	}
	return about
}

func statusNotWritten(s *sample) []string {
	writers, known := 0.0, false
	for _, m := range s.metrics {
		leader, ok := m.Value("gatehouse_status_leader")
		writers, known = writers+leader, known || ok
	}
	if !known || writers == 1 || !s.isComplete() {
		return nil
	}
	return []string{fmt.Sprintf("%.0f replicas write it", writers)}
}

func auditTooOld(s *sample) []string {
	var interval, youngest float64
	oldest := 0.0
	for _, m := range s.metrics {
		every, _ := m.Value("gatehouse_audit_interval_seconds")
		interval = max(interval, every)
		if at, ok := m.Value("gatehouse_audit_last_success_timestamp_seconds"); ok {
			youngest = max(youngest, at)
			oldest++
		}
	}
	switch {
	case interval == 0 || oldest == 0 && !s.isComplete():
		return nil
	case oldest == 0:
		return []string{"there is none"}
	case unixSeconds(s.at)-youngest > 2*interval:
		return []string{"the last one ended at " + formatSeconds(youngest)}
	}
	return nil
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// formatSeconds formats a Unix timestamp of a metric.
func formatSeconds(seconds float64) string {
	t := secondsTime(seconds)
	return cli.FormatTime(&t)
}

// secondsTime returns a Unix timestamp of a metric as a time.
func secondsTime(seconds float64) time.Time { return time.UnixMilli(int64(seconds * 1000)).UTC() }

// certificateEnds returns the condition of an alert about certificates that end within a time.
func certificateEnds(within time.Duration, of func(subject string) bool) func(*sample) []string {
	return func(s *sample) (about []string) {
		for _, replica := range s.names() {
			for _, one := range s.metrics[replica].Series("gatehouse_certificate_not_after_timestamp_seconds") {
				if of(one.Labels["subject"]) && one.Value-unixSeconds(s.at) < within.Seconds() {
					about = append(about, fmt.Sprintf("replica %s: the %s ends at %s", replica, one.Labels["subject"], formatSeconds(one.Value)))
				}
			}
		}
		return about
	}
}

func rotationPhase(phases ...string) func(*sample) []string {
	return func(s *sample) (about []string) {
		for _, phase := range phases {
			for _, m := range s.metrics {
				if v, _ := m.Value("gatehouse_ca_rotation_phase", "phase", phase); v == 1 {
					about = append(about, "phase "+phase)
					break
				}
			}
		}
		return about
	}
}

func replicasDisagree(s *sample) []string {
	generations := map[float64]bool{}
	for _, m := range s.metrics {
		if v, ok := m.Value("gatehouse_ca_generation"); ok {
			generations[v] = true
		}
	}
	if len(generations) < 2 {
		return nil
	}
	all := slices.Sorted(maps.Keys(generations))
	return []string{fmt.Sprintf("they are %.0f changes apart", all[len(all)-1]-all[0])}
}

func memoryNearLimit(s *sample) (about []string) {
	const near = 0.95
	for _, replica := range s.names() {
		used, _ := s.metrics[replica].Value("process_resident_memory_bytes")
		limit, ok := s.metrics[replica].Value("go_gc_gomemlimit_bytes")
		if ok && limit > 0 && used/limit > near {
			about = append(about, fmt.Sprintf("replica %s: %.0f %%", replica, 100*used/limit))
		}
	}
	return about
}

// firing is an alert whose condition holds.
type firing struct {
	Name, Severity, Summary string
	Wait                    time.Duration
	About                   []string
}

// alertsOf returns the alerts whose condition holds in a sample.
func alertsOf(s *sample) (out []firing) {
	for _, a := range sampledAlerts() {
		if about := a.condition(s); len(about) > 0 {
			out = append(out, firing{a.name, a.severity, a.summary, a.wait, about})
		}
	}
	return out
}
