package console

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replicas"
)

// unsampledAlerts are the alerts that one sample of the replicas cannot decide, with the reason.
func unsampledAlerts() map[string]string {
	const rate, apiServer, others = "needs a rate", "needs metrics of API servers", "needs metrics of another program"
	return map[string]string{
		"GatehouseAbsent": "is about what Prometheus scrapes", "GatehouseNoReplicaAvailable": others, "GatehouseNotReady": others, "GatehouseThrottled": others,
		"GatehouseFailsOpen": apiServer, "GatehouseRejectsByError": apiServer, "GatehouseSlowForAPIServers": apiServer, "GatehouseCertificateLacksName": apiServer,
		"GatehouseSheds": rate, "GatehouseCannotDecide": rate, "GatehouseDeadlines": rate, "GatehouseReviewsTooLarge": rate, "GatehouseRefusesCallers": rate,
		"GatehouseSlow": rate, "GatehousePoliciesFail": rate, "GatehouseViolationsRise": rate, "GatehouseHandshakesFail": rate, "GatehouseCAIsFoughtOver": rate,
		"GatehouseBundlesNotPublished": rate, "GatehouseBundlesAreFoughtOver": rate, "GatehouseCannotTellWhoLogsIn": rate, "GatehouseCannotLogIn": rate,
		"GatehousePasswordsAreGuessed": rate, "GatehouseTracesDropped": rate, "GatehouseRecordingDrops": rate,
	}
}

// TestSampledAlerts compares the alerts with the rules for Prometheus.
func TestSampledAlerts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../../manifests/monitoring/prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert, For          string
					Labels, Annotations map[string]string
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	rules, names := map[string]bool{}, map[string]bool{}
	for _, group := range file.Spec.Groups {
		for _, rule := range group.Rules {
			wait := model.Duration(0)
			if rule.For != "" {
				if wait, err = model.ParseDuration(rule.For); err != nil {
					t.Fatal(err)
				}
			}
			names[rule.Alert] = true
			rules[fmt.Sprint(rule.Alert, rule.Labels["severity"], rule.Annotations["summary"], time.Duration(wait))] = true
		}
	}
	unsampled := unsampledAlerts()
	for _, a := range sampledAlerts() {
		if key := fmt.Sprint(a.name, a.severity, a.summary, a.wait); !rules[key] {
			t.Errorf("the rules have no %s", key)
		}
		if unsampled[a.name] != "" {
			t.Errorf("%s is in both lists", a.name)
		}
		delete(names, a.name)
	}
	for name := range unsampled {
		if !names[name] {
			t.Errorf("the rules have no %s", name)
		}
		delete(names, name)
	}
	if len(names) > 0 {
		t.Errorf("in no list: %s", slices.Sorted(maps.Keys(names)))
	}
}

func testSample(t *testing.T, texts ...string) *sample {
	t.Helper()
	s := &sample{at: time.Unix(1_000_000_000, 0), metrics: map[string]*replicas.Metrics{}, running: len(texts)}
	for i, text := range texts {
		m, err := replicas.ReadMetrics(strings.NewReader(text + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		s.metrics[fmt.Sprintf("pod-%d", i)] = m
	}
	return s
}

func TestAlertsOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		metrics []string
		want    string
	}{
		{"nothing", []string{"gatehouse_config_last_load_successful 1"}, ""},
		{"no metrics", nil, ""},
		{"configuration not used", []string{"gatehouse_config_last_load_successful 1", "gatehouse_config_last_load_successful 0"}, "GatehouseConfigurationNotUsed: replica pod-1"},
		{"file emptied", []string{"gatehouse_config_emptied_files 1"}, "GatehouseConfigurationFileEmptied: replica pod-0"},
		{"configurations differ", []string{`gatehouse_config_info{digest="a"} 1`, `gatehouse_config_info{digest="b"} 1`}, "GatehouseConfigurationsDiffer: a: pod-0; b: pod-1"},
		{"same configuration", []string{`gatehouse_config_info{digest="a"} 1`, `gatehouse_config_info{digest="a"} 1`}, ""},
		{"resources not used", []string{`gatehouse_custom_resources{kind="AdmissionPolicy",state="unused"} 2`, "gatehouse_custom_resources{kind=\"AdmissionPolicy\",state=\"unused\"} 3\ngatehouse_custom_resources{kind=\"AdmissionPolicy\",state=\"current\"} 3"}, "GatehouseCustomResourcesNotUsed: AdmissionPolicy, unused: 3"},
		{"cluster not read", []string{`gatehouse_cluster_synced{kind="Namespace"} 0`}, "GatehouseClusterNotRead: replica pod-0, kind Namespace"},
		{"two leaders", []string{"gatehouse_status_leader 1", "gatehouse_status_leader 1"}, "GatehouseStatusNotWritten: 2 replicas write it"},
		{"one leader", []string{"gatehouse_status_leader 1", "gatehouse_status_leader 0"}, ""},
		{"no audit", []string{"gatehouse_audit_interval_seconds 60"}, "GatehouseAuditTooOld: there is none"},
		{"old audit", []string{"gatehouse_audit_interval_seconds 60\ngatehouse_audit_last_success_timestamp_seconds 999999879", "gatehouse_audit_interval_seconds 60"}, "GatehouseAuditTooOld: the last one ended at 2001-09-09T01:44:39Z"},
		{"young audit", []string{"gatehouse_audit_interval_seconds 60\ngatehouse_audit_last_success_timestamp_seconds 999999881"}, ""},
		{"certificate", []string{`gatehouse_certificate_not_after_timestamp_seconds{subject="serving certificate"} 1000100000`}, "GatehouseCertificateEnds: replica pod-0: the serving certificate ends at 2001-09-10T05:33:20Z"},
		{"CA", []string{`gatehouse_certificate_not_after_timestamp_seconds{subject="self-signed CA"} 1001000000`}, "GatehouseCAEnds: replica pod-0: the self-signed CA ends at 2001-09-20T15:33:20Z"},
		{"renewal", []string{"gatehouse_certificate_renewal_refused 1"}, "GatehouseRenewalRefused: replica pod-0"},
		{"not trusted", []string{`gatehouse_ca_bundle_trusted{kind="V",name="n"} 0`}, "GatehouseNotTrusted: replica pod-0, kind V, name n"},
		{"rotation", []string{`gatehouse_ca_rotation_phase{phase="Hold"} 1`, `gatehouse_ca_rotation_phase{phase="Activate"} 1`}, "GatehouseRotationIsStuck: phase Hold\nGatehouseRotationIsStuck: phase Activate"},
		{"stable", []string{`gatehouse_ca_rotation_phase{phase="Stable"} 1`}, ""},
		{"store", []string{"gatehouse_ca_store_last_successful 0"}, "GatehouseCAStoreFails: replica pod-0"},
		{"replicas disagree", []string{"gatehouse_ca_generation 7", "gatehouse_ca_generation 9"}, "GatehouseReplicasDisagree: they are 2 changes apart"},
		{"issuer", []string{`gatehouse_issuer_keys{issuer="https://i"} 0`}, "GatehouseIssuerWithoutKeys: replica pod-0, issuer https://i"},
		{"memory", []string{"process_resident_memory_bytes 96\ngo_gc_gomemlimit_bytes 100"}, "GatehouseMemoryNearLimit: replica pod-0: 96 %"},
		{"recording", []string{"gatehouse_record_failing_since_timestamp_seconds 5"}, "GatehouseRecordingFails: replica pod-0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, f := range alertsOf(testSample(t, tt.metrics...)) {
				got = append(got, f.Name+": "+strings.Join(f.About, "; "))
			}
			if text := strings.Join(got, "\n"); text != tt.want {
				t.Errorf("alerts\n%s\nwant\n%s", text, tt.want)
			}
		})
	}
	if about := statusNotWritten(&sample{running: 2, metrics: testSample(t, "gatehouse_status_leader 0").metrics}); about != nil {
		t.Errorf("a replica that was not read may write status: %s", about)
	}
}
