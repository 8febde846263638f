package incluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// TestServersOwnDocuments: "check" asks the pods of an install in a namespace of its own for the documents of their directory, through
// the port-forward of a real API server, and with the rights of the roles that the install has for people. Its mutating policy changes
// what it matches.
func TestServersOwnDocuments(t *testing.T) {
	t.Parallel()
	const hall = "hall"
	s := newSiteFor(t, hall)
	must(t, s.CreateNamespace(t.Context(), hall, nil))
	must(t, s.apply(t.Context(), `
apiVersion: v1
kind: ConfigMap
metadata: {name: gatehouse-config, namespace: hall}
data:
  policy.yaml: |
    apiVersion: gatehouse.dev/v1alpha1
    kind: AdmissionPolicy
    metadata: {name: of-the-directory}
    spec:
      matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
      validations: [{expression: has(object.metadata.labels), message: needs a label}]
      validationActions: [Deny]
  mutating.yaml: |
    apiVersion: admissionregistration.k8s.io/v1
    kind: MutatingAdmissionPolicy
    metadata: {name: of-the-directory}
    spec:
      reinvocationPolicy: Never
      matchConstraints:
        objectSelector: {matchLabels: {changed: "no"}}
        resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
      mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'changed': 'yes'}}}"}}]
    ---
    apiVersion: admissionregistration.k8s.io/v1
    kind: MutatingAdmissionPolicyBinding
    metadata: {name: of-the-directory}
    spec: {policyName: of-the-directory}
`))
	_, err := s.helm(t.Context(), t.TempDir(), "install", "doorkeeper", chart, "--namespace", hall, "--set", "replicaCount=2")
	must(t, err)
	err = s.kubectl(t.Context(), "", "rollout", "status", "deployment/gatehouse", "--namespace", hall, "--timeout", deadline.String())
	must(t, err)
	support.Eventually(t, "the mutating policy", func() error {
		changed, err := s.Client().CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "changed", Labels: map[string]string{"changed": "no"}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && changed.Labels["changed"] != "yes" {
			err = fmt.Errorf("it has the labels %v", changed.Labels)
		}
		return err
	})
	file := filepath.Join(t.TempDir(), "unlabelled.yaml")
	must(t, os.WriteFile(file, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: unlabelled, namespace: default}}"), 0o600))
	config, err := s.ConfigFor("carol")
	must(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, cluster.WriteKubeconfig(kubeconfig, config.Host, config.CAData, config.CertData, config.KeyData))
	for _, step := range []struct {
		bind []string
		code int
		says string
	}{
		{nil, 2, "bind the ClusterRole gatehouse-auditor"},
		{[]string{"clusterrolebinding", "auditors", "--clusterrole=gatehouse-auditor"}, 2, "in namespace hall is missing (hint: bind the ClusterRole gatehouse-console in this namespace)"},
		{[]string{"rolebinding", "console", "--clusterrole=gatehouse-console", "--namespace=hall"}, 1, "denied: AdmissionPolicy of-the-directory"},
	} {
		if step.bind != nil {
			err := s.kubectl(t.Context(), "", append([]string{"create", "--user=carol"}, step.bind...)...)
			must(t, err)
		}
		support.Eventually(t, "check says "+step.says, func() error {
			code, stdout, stderr := runProgram(t, "check", "--kubeconfig", kubeconfig, "-f", file)
			if said := stdout + stderr; code != step.code || !strings.Contains(said, step.says) {
				return fmt.Errorf("exit code %d, want %d: %s", code, step.code, said)
			}
			return nil
		})
	}
}
