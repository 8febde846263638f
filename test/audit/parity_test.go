package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// parityKinds are those of the objects that both commands decide about.
const parityKinds = "pods,deployments,statefulsets,cronjobs,replicasets,configmaps,services,serviceaccounts,secrets,widgets,horizontalpodautoscalers,ingresses,namespaces,clusterroles,poddisruptionbudgets"

// parityObjects returns objects of many kinds and forms in four namespaces.
func parityObjects() string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, "---\n"+format+"\n", args...) }
	containers := []string{
		`containers: [{name: app, image: "app:1"}]`,
		`containers: [{name: app, image: "registry.example.com/app@sha256:` + strings.Repeat("a", 64) + `", resources: {limits: {memory: 64Mi, cpu: 100m}, requests: {memory: 64Mi, cpu: "0.1"}}}]`,
		`hostNetwork: true, containers: [{name: app, image: app, securityContext: {privileged: true}}, {name: more, image: "more:latest", ports: [{containerPort: 80, hostPort: 80}]}]`,
		`containers: [{name: app, image: "app:1", securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 1000, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}}]`,
		`automountServiceAccountToken: false, volumes: [{name: h, hostPath: {path: /var}}], containers: [{name: app, image: "app:1", volumeMounts: [{name: h, mountPath: /h}]}]`,
	}
	metadata := []string{
		`labels: {app: a, owner: x}`, `labels: {app: a, owner: nobody}`, `labels: {app: a}, annotations: {sidecar.gatehouse.dev/inject: "false"}`,
		`labels: {app: a}, annotations: {owners: excepted, log-shipper.sidecar.gatehouse.dev/memory: 128Mi}`, `labels: {app: a}, annotations: {log-shipper.sidecar.gatehouse.dev/memory: 9Gi}`,
	}
	for _, namespace := range []string{"shop", "lab", "till", "plain"} {
		for i, container := range containers {
			for k, m := range metadata {
				name := fmt.Sprintf("a%d-%d", i, k)
				if k == 0 {
					name = "legacy-" + name
				}
				add(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, %s}, spec: {%s}}`, name, namespace, m, container)
				if i+k < 5 {
					add(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: %s, %s}, spec: {replicas: %d, selector: {matchLabels: {app: a}}, template: {metadata: {%s}, spec: {%s}}}}`, name, namespace, m, i+k, m, container)
				}
			}
			add(`{apiVersion: batch/v1, kind: CronJob, metadata: {name: c%d, namespace: %s}, spec: {schedule: "0 0 * * *", jobTemplate: {spec: {template: {metadata: {%s}, spec: {restartPolicy: Never, %s}}}}}}`, i, namespace, metadata[i], container)
			add(`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s%d, namespace: %s}, spec: {replicas: %d, serviceName: s, selector: {matchLabels: {app: a}}, template: {metadata: {%s}, spec: {%s}}}}`, i, namespace, i, metadata[i], container)
		}
		for i, m := range metadata {
			add(`{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d, namespace: %s, %s}, data: {must: "%s"}}`, i, namespace, m, []string{"", "x"}[i%2])
			add(`{apiVersion: v1, kind: Service, metadata: {name: v%d, namespace: %s, %s}, spec: {type: %s, ports: [{port: 80}]}}`, i, namespace, m, []string{"ClusterIP", "NodePort", "LoadBalancer"}[i%3])
			add(`{apiVersion: v1, kind: Secret, metadata: {name: p%d, namespace: %s}, stringData: {password: "%s"}}`, i, namespace, strings.Repeat("hunter2", i))
			add(`{apiVersion: example.com/v1, kind: Widget, metadata: {name: w%d, namespace: %s, %s}, spec: {size: %d}}`, i, namespace, m, i)
			add(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h%d, namespace: %s}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: %d}}}]}}`, i, namespace, 30+10*i)
			add(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: i%d, namespace: %s}, spec: {rules: [{host: %s, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: v, port: {number: 80}}}}]}}]}}`, i, namespace, []string{"a.example.com", `"*.example.com"`, "b.example.com", "c.example.com", "d.example.com"}[i])
			add(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b%d, namespace: %s}, spec: {maxUnavailable: %d, selector: {matchLabels: {app: a}}}}`, i, namespace, i)
		}
		add(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: site-%s}, rules: [{apiGroups: [""], resources: [pods], verbs: ["*"]}]}`, namespace)
	}
	return b.String()
}

// paritySite creates the objects, and returns a directory of policies that the cluster does not have.
func paritySite(t *testing.T, c *cluster.Cluster) (config string) {
	t.Helper()
	root, err := support.Root()
	must(t, err)
	config = t.TempDir()
	must(t, os.CopyFS(filepath.Join(config, "library"), os.DirFS(filepath.Join(root, "manifests/policies"))))
	extra := read(t, "parity/extra.yaml")
	profile, err := os.ReadFile(filepath.Join(root, "manifests/examples/log-shipper/profile.yaml"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(config, "profile.yaml"), profile, 0o600))
	must(t, os.WriteFile(filepath.Join(config, "extra.yaml"), []byte(extra), 0o600))
	for name, labels := range parityNamespaces() {
		// The API server's own Pod Security Admission must not refuse what is to be found.
		must(t, c.CreateNamespace(t.Context(), name, map[string]string{"env": labels["env"], "logs": labels["logs"]}))
	}
	_, definition, _ := strings.Cut(extra, "---\napiVersion: apiextensions")
	definition, params, _ := strings.Cut("apiVersion: apiextensions"+definition, "\n---\n")
	apply(t, c, definition)
	support.Eventually(t, "widgets are served", func() error {
		text, err := kubectl(t, c, "", "get", "widgets", "-A")
		if err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
	objects := newCreator(t, c.Config())
	objects.addYAML(t, params)
	objects.addYAML(t, parityObjects())
	objects.close(t)
	for name, labels := range parityNamespaces() {
		for key, value := range labels {
			if text, err := kubectl(t, c, "", "label", "--overwrite", "namespace", name, key+"="+value); err != nil {
				t.Fatal(err, text)
			}
		}
	}
	return config
}

// parityNamespaces are the labels of the namespaces.
func parityNamespaces() map[string]map[string]string {
	const security = "pod-security.kubernetes.io/"
	return map[string]map[string]string{
		"shop": {"env": "prod", "logs": "shipped"}, "lab": {"env": "test", security + "enforce": "restricted", security + "warn": "restricted"},
		"till": {"env": "prod", security + "enforce": "privileged", security + "warn": "baseline"}, "plain": {}, "gatehouse-system": {"env": "system"},
	}
}

// existing returns objects of all namespaces as kubectl prints them.
func existing(t *testing.T, c *cluster.Cluster, kinds string) []map[string]any {
	t.Helper()
	var list struct{ Items []map[string]any }
	text, err := c.Kubectl(t.Context(), "get", kinds, "-A", "-o", "json").Output()
	must(t, err)
	must(t, json.Unmarshal(text, &list))
	return list.Items
}

// TestParity has an audit say of every object what check says of it: of the same object, as kubectl prints it, by the same
// policies, profiles, exceptions, params and namespaces.
func TestParity(t *testing.T) {
	c := cluster.New(t, cluster.Options{})
	config := paritySite(t, c)
	objects := existing(t, c, parityKinds)
	var manifests, namespaces bytes.Buffer
	left := func(namespace any) bool {
		return namespace == "kube-system" || namespace == "kube-node-lease" || namespace == "gatehouse-system"
	}
	for _, o := range objects {
		metadata, _ := o["metadata"].(map[string]any)
		text, err := json.Marshal(o)
		must(t, err)
		home := metadata["namespace"]
		if o["kind"] == "Namespace" {
			namespaces.WriteString("---\n" + string(text) + "\n")
			home = metadata["name"]
		}
		if !left(home) {
			manifests.WriteString("---\n" + string(text) + "\n")
		}
	}
	must(t, os.WriteFile(filepath.Join(config, "namespaces.yaml"), namespaces.Bytes(), 0o600))
	file := filepath.Join(t.TempDir(), "objects.yaml")
	must(t, os.WriteFile(file, manifests.Bytes(), 0o600))

	code, out, messages := program(t, "audit", "--kubeconfig", kubeconfig(t, c.Config()), "--config", config, "-o", "ndjson")
	if code > 1 {
		t.Fatalf("audit: exit code %d\n%s\n%s", code, messages, out[max(0, len(out)-5000):])
	}
	audited, skipped, states := readAudit(t, out)
	code, out, messages = program(t, "check", "--config", config, "-f", file, "-o", "json")
	if code > 1 {
		t.Fatalf("check: exit code %d\n%s", code, messages)
	}
	checked := readCheck(t, out, skipped)
	t.Logf("%d objects, %d results, %d rules are skipped", len(objects), len(checked), len(skipped))
	if len(checked) < 500 || !skipped["owners validations[author]"] {
		t.Errorf("%d results, skipped are %v", len(checked), skipped)
	}
	for _, line := range checked {
		if !slices.Contains(audited, line) {
			t.Errorf("check alone has %s", line)
		}
	}
	for _, line := range audited {
		if isChange := strings.HasPrefix(line, "change|"); !isChange && !slices.Contains(checked, line) { // check shows the result alone
			t.Errorf("audit alone has %s", line)
		}
	}
	// Every way to a result is among them.
	all := strings.Join(audited, "\n")
	for _, want := range []string{
		"change|Pod|shop|", "fail|Pod|shop|", "fail|Deployment|", "|spec.jobTemplate.spec.template|", "warn|Pod|lab|", "skip|", "|gatehouse-system/legacy", "|gatehouse-system/by-value", "|podSecurity.", "|replicas-strict|", "|replicas-own|",
		"|SidecarProfile|log-shipper|", "|old-autoscalers|", "|fails-closed|", "|passwords|", "fail|Namespace|", "fail|ClusterRole|", "fail|Widget|",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("there is no result with %s", want)
		}
	}
	for _, want := range []string{"missing shop", "declined shop"} {
		if states[want] == 0 {
			t.Errorf("no pod is %s: %v", want, states)
		}
	}
	if strings.Contains(strings.Join(audited, "\n"), "aHVudGVy") {
		t.Error("a value of a Secret is in a message")
	}
}

// readAudit returns a line for each result, the rules that are skipped, and the states of injection with numbers.
func readAudit(t *testing.T, out string) (lines []string, skipped map[string]bool, states map[string]int) {
	t.Helper()
	skipped, states = map[string]bool{}, map[string]int{}
	for text := range strings.Lines(out) {
		var line struct {
			Status, APIVersion, Kind, Namespace, Name                     string
			PolicyKind, Policy, Binding, Rule, Template, Exception, State string
			Report                                                        *struct {
				Complete bool
				Skipped  []struct{ Policy, Rule string }
			}
		}
		must(t, json.Unmarshal([]byte(text), &line))
		switch {
		case line.Report != nil:
			if !line.Report.Complete {
				t.Errorf("the audit is not complete: %s", text)
			}
			for _, s := range line.Report.Skipped {
				skipped[s.Policy+" "+s.Rule] = true
			}
		case line.State != "":
			states[line.State+" "+line.Namespace]++
		case line.Policy == "" && line.Status == "warn": // a warning of the API server's answer, which check has beside violations
		default:
			lines = append(lines, strings.Join([]string{line.Status, line.Kind, line.Namespace, line.Name, line.PolicyKind, line.Policy, line.Binding, line.Rule, line.Template, line.Exception}, "|"))
		}
	}
	slices.Sort(lines)
	return lines, skipped, states
}

// readCheck returns the same lines from the output of check, without rules that are skipped.
func readCheck(t *testing.T, out string, skipped map[string]bool) []string {
	t.Helper()
	var lines []string
	for text := range strings.Lines(out) {
		var object struct {
			Kind, Namespace, Name, Verdict, Error string
			Violations                            []struct {
				Kind, Policy, Binding, Rule, Template, Exception, Effect string
			}
		}
		must(t, json.Unmarshal([]byte(text), &object))
		add := func(status, kind, policy, binding, rule, template, exception string) {
			lines = append(lines, strings.Join([]string{status, object.Kind, object.Namespace, object.Name, kind, policy, binding, rule, template, exception}, "|"))
		}
		for _, v := range object.Violations {
			if skipped[v.Policy+" "+v.Rule] || skipped[v.Policy+" "] {
				continue
			}
			status := map[string]string{"denied": "fail", "warned": "warn", "audited": "warn", "excepted": "skip"}[v.Effect]
			add(status, v.Kind, v.Policy, v.Binding, v.Rule, v.Template, v.Exception)
		}
		if object.Error != "" {
			add("error", "", "", "", "", "", "")
		}
	}
	slices.Sort(lines)
	return lines
}
