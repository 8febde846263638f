package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// pushedPolicies are about LimitRanges, which nobody else has, and have match conditions that the API server can decide.
const pushedPolicies = `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: created}
spec:
  validationActions: [Deny]
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [limitranges]}]
  matchConditions:
  - {name: not-the-robot, expression: request.userInfo.username != "pushed-robot"}
  - {name: not-a-breaker, expression: '!("pushed-breakers" in request.userInfo.groups)'}
  - name: not-who-may
    expression: '!authorizer.group("gatehouse.example").resource("gates").check("break").allowed()'
  - name: not-skipped
    expression: |
      !(has(object.metadata.labels) && "skip" in object.metadata.labels &&
        object.metadata.labels["skip"] == "yes") // ) || (true
  validations: [{expression: "false"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: deleted}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [limitranges]}]
  matchConditions:
  - {name: kept, expression: 'oldObject.metadata.?annotations[?"keep"].orValue("no") == "yes"'}
  - {name: here, expression: has(request.namespace) && request.namespace.startsWith("rul") && request.dryRun}
  validations: [{expression: "false"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: deleted}
spec: {policyName: deleted, validationActions: [Deny]}
`

// Match conditions of policies are evaluated by the API server: Gatehouse is not even there, so that a request that is
// to be decided is refused, and one that a condition leaves out passes.
func TestPushedMatchConditions(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	const namespace = "rules"
	must(t, w.apply(t.Context(), `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pushed}
rules: [{apiGroups: [""], resources: [limitranges], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: pushed}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pushed}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: pushed}]
`))
	config := filepath.Join(t.TempDir(), "config")
	must(t, os.Mkdir(config, 0o700))
	must(t, os.WriteFile(filepath.Join(config, "policies.yaml"), []byte(pushedPolicies), 0o600))
	// Nobody listens at the port.
	documents, err := gatehouse.Run(t.Context(), "manifests", "--name", "pushed", "--config", config, "--url", "https://127.0.0.1:1", "--ca-file", w.path("ca.crt"))
	must(t, err)
	if !strings.Contains(documents, "name: policies\n") {
		t.Fatalf("no condition is pushed:\n%s", documents)
	}

	as := func(user string, groups ...string) kubernetes.Interface {
		c, err := w.ConfigFor(user, groups...)
		must(t, err)
		client, err := kubernetes.NewForConfig(c)
		must(t, err)
		return client
	}
	writer := as("pushed-writer", "pushed")
	limits := func(labels, annotations map[string]string) *corev1.LimitRange {
		return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: labels, Annotations: annotations}}
	}
	for name, annotations := range map[string]map[string]string{"kept": {"keep": "yes"}, "free": {"keep": "no"}, "plain": nil} {
		object := limits(map[string]string{"skip": "yes"}, annotations)
		object.Name = name
		// What the writer may do becomes known by a watch.
		support.Eventually(t, "a LimitRange", func() error {
			_, err := writer.CoreV1().LimitRanges(namespace).Create(t.Context(), object, metav1.CreateOptions{})
			return err
		})
	}
	creates := func(client kubernetes.Interface, labels map[string]string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := client.CoreV1().LimitRanges(namespace).Create(ctx, limits(labels, nil), dryRun)
			return err
		}
	}
	deletes := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			return writer.CoreV1().LimitRanges(namespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun.DryRun})
		}
	}
	must(t, w.apply(t.Context(), documents))
	t.Cleanup(func() { w.unregister(t, "pushed", creates(writer, nil)) })
	notThere := func(err error) error {
		if err == nil {
			return errors.New("the request passes")
		}
		if !strings.Contains(err.Error(), "failed calling webhook") {
			return err
		}
		return nil
	}
	support.Eventually(t, "the registration", func() error { return notThere(creates(writer, nil)(t.Context())) })
	for name, c := range map[string]struct {
		request func(context.Context) error
		sent    bool
	}{
		"somebody":                      {creates(writer, nil), true},
		"with another label":            {creates(writer, map[string]string{"other": "yes"}), true},
		"with the label's other value":  {creates(writer, map[string]string{"skip": "no"}), true},
		"with the label":                {creates(writer, map[string]string{"skip": "yes"}), false},
		"the robot":                     {creates(as("pushed-robot", "pushed"), nil), false},
		"a breaker":                     {creates(as("pushed-writer", "pushed", "pushed-breakers"), nil), false},
		"one who may":                   {creates(as("pushed-writer", "system:masters"), nil), false},
		"deletion of what is kept":      {deletes("kept"), true},
		"deletion of what is not":       {deletes("free"), false},
		"deletion of what says nothing": {deletes("plain"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.request(t.Context())
			if c.sent {
				err = notThere(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
