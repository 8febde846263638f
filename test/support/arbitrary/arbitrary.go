// Package arbitrary makes random policies with exceptions, and random objects for them, for tests that hold two ways to decide against each
// other. A seed always makes the same.
package arbitrary

import (
	"fmt"
	"maps"
	"math/rand"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// Names are those that a configuration has for itself.
type Names struct {
	// Policy is that of its policy, with which the names of its exceptions begin.
	Policy string
	// Shop and Lab are its namespaces.
	Shop, Lab string
	// Only reports whether its policy is about objects in these namespaces alone.
	Only bool
}

// Namespaces returns the namespaces.
func (n Names) Namespaces() []corev1.Namespace {
	return []corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: n.Shop, Labels: map[string]string{"env": "prod", "team": "a", corev1.LabelMetadataName: n.Shop}}},
		{ObjectMeta: metav1.ObjectMeta{Name: n.Lab, Labels: map[string]string{corev1.LabelMetadataName: n.Lab}}},
	}
}

func of[T any](random *rand.Rand, all ...T) T { return all[random.Intn(len(all))] }

func some(random *rand.Rand, all ...string) (out []string) {
	for _, one := range all {
		if random.Intn(2) == 0 {
			out = append(out, one)
		}
	}
	return out
}

// expressions are rules about pods.
func expressions(n Names) []string {
	return []string{
		`object.spec.containers.all(c, c.image.startsWith("r/"))`, `!has(object.metadata.labels) || !("bad" in object.metadata.labels)`,
		`object.metadata.?labels.?team.orValue("") != ""`, `object.spec.?hostNetwork.orValue(false) == false`,
		`object.spec.containers.exists(c, c.name == "app")`, fmt.Sprintf(`request.namespace != %q || object.spec.containers.size() < 2`, n.Shop),
		`object.spec.containers.all(c, c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0))`, fmt.Sprintf(`object.kind == "Pod" && object.metadata.namespace != %q`, n.Lab),
		`oldObject == null || object.spec == oldObject.spec`, `variables.images.all(i, i != "x")`, `request.operation == "CREATE" || request.userInfo.username == "jane"`,
		`object.metadata.labels.team in ["a", "b"]`, `object.metadata.name != "x"`, `namespaceObject.metadata.?labels.?env.orValue("") != "prod"`,
		`object.spec.containers[0].image == "r/app"`, `object.spec.containers.filter(c, c.image == "x").size() < 2`, `object.metadata.?annotations.?note.orValue("") == "" || variables.images.size() == 1`,
		`request.dryRun || true`, `request.userInfo.groups.exists(g, g == "nobody") || object.metadata.?labels.orValue({}).size() > 1`,
	}
}

// Configuration returns a configuration with a policy and its exceptions. Those that expire have not, or have long, at the time.
func Configuration(random *rand.Rand, n Names, now time.Time) *config.Config {
	spec := v1alpha1.AdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"}, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}}},
		Variables:         []admissionregistrationv1.Variable{{Name: "images", Expression: "object.spec.containers.map(c, c.image)"}},
		ValidationActions: []admissionregistrationv1.ValidationAction{of[admissionregistrationv1.ValidationAction](random, "Deny", "Deny", "Warn")},
	}
	if n.Only {
		spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{n.Shop, n.Lab}},
		}}
	}
	if random.Intn(3) == 0 {
		spec.ExistingViolations = v1alpha1.DenyExisting
	}
	if random.Intn(3) == 0 {
		spec.FailurePolicy = new(admissionregistrationv1.Ignore)
	}
	if random.Intn(2) == 0 {
		spec.WorkloadTemplates = v1alpha1.IgnoreTemplates
	}
	for i := range 1 + random.Intn(3) {
		v := v1alpha1.Validation{}
		v.Expression, v.Message = of(random, expressions(n)...), fmt.Sprintf("rule %d does not hold", i)
		if random.Intn(2) == 0 {
			v.Name = fmt.Sprintf("rule-%d", i)
		}
		spec.Validations = append(spec.Validations, v)
	}
	if random.Intn(4) == 0 {
		spec.MatchConstraints.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": of(random, "a", "b")}}
	}
	if random.Intn(3) == 0 {
		spec.MatchConditions = []admissionregistrationv1.MatchCondition{{
			Name: "c", Expression: of(random, `request.userInfo.username != "root"`, `object.metadata.?labels.?skip.orValue("") == ""`, `object.metadata.?labels.?team.orValue("") == "a"`),
		}}
	}
	c := &config.Config{Policy: policy.Spec{AdmissionPolicies: []policy.AdmissionPolicy{
		{Source: "policy", AdmissionPolicy: v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: n.Policy}, Spec: spec}},
	}}}
	for i := range random.Intn(4) {
		c.Policy.Exceptions = append(c.Policy.Exceptions, exception(random, n, i, &spec, now))
	}
	return c
}

func exception(random *rand.Rand, n Names, i int, spec *v1alpha1.AdmissionPolicySpec, now time.Time) policy.Exception {
	selector := func() *metav1.LabelSelector {
		r := metav1.LabelSelectorRequirement{Key: of(random, "team", "env"), Operator: of(random, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = []string{of(random, "a", "prod"), "b"}
		}
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
	}
	x := policy.Exception{Source: "exception"}
	x.Namespace, x.Name, x.Spec.Reason = "gatehouse-system", fmt.Sprintf("%s-x%d", n.Policy, i), "because"
	x.Spec.Policies = []v1alpha1.ExceptedPolicy{{Name: n.Policy}}
	if random.Intn(2) == 0 {
		x.Spec.Policies[0].Rules = []string{spec.RuleName(random.Intn(len(spec.Validations)))}
	}
	m := &x.Spec.Match
	switch m.Namespaces = some(random, n.Shop, n.Lab); random.Intn(6) {
	case 0:
		m.Names = some(random, "d", "web*", "x*", "ap*")
	case 1:
		m.NamespaceSelector = selector()
	case 2:
		m.ObjectSelector = selector()
	case 3:
		m.MatchConditions = []admissionregistrationv1.MatchCondition{{
			Name: "c", Expression: of(random, `object.spec.containers.size() == 1`, `object.metadata.labels.team == "a"`, `request.userInfo.username == "jane"`, `object.metadata.name == "d"`),
		}}
	case 4:
		m.Containers = &v1alpha1.ExceptionContainers{Names: []string{"app"}}
	}
	if len(m.Namespaces)+len(m.Names)+len(m.MatchConditions) == 0 && m.NamespaceSelector == nil && m.ObjectSelector == nil && m.Containers == nil {
		m.Names = []string{"web*"} // an exception must select objects
	}
	if random.Intn(4) == 0 {
		x.Spec.ExpiresAt = &metav1.Time{Time: now.Add(time.Duration(random.Intn(3)-1) * 24 * time.Hour)}
	}
	return x
}

// Pod returns a pod, without a namespace, that some of the policies are about.
func Pod(random *rand.Rand) map[string]any {
	labels := map[string]any{"team": "a", "bad": "x"}
	for _, name := range some(random, "team", "bad") {
		delete(labels, name)
	}
	for _, name := range some(random, "skip", "env") {
		labels[name] = "b"
	}
	metadata := map[string]any{"name": of(random, "web-1", "d", "x", "apple"), "labels": labels}
	if random.Intn(6) == 0 {
		delete(metadata, "name")
		metadata["generateName"] = of(random, "web-", "we")
	}
	if random.Intn(3) == 0 {
		metadata["annotations"] = map[string]any{"note": "n"}
	}
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": map[string]any{
		"hostNetwork": random.Intn(3) == 0,
		"containers": []any{
			map[string]any{"name": "app", "image": "r/app", "ports": []any{map[string]any{"containerPort": int64(80), "hostPort": int64(80)}}},
			map[string]any{"name": "b", "image": of(random, "r/app", "x")},
			map[string]any{"name": "c", "image": "x"},
		}[:1+random.Intn(3)],
	}}
}

// Workload returns a Deployment or CronJob with the pod as its template, and the name of the pod.
func Workload(kind string, pod map[string]any) map[string]any {
	from, _ := pod["metadata"].(map[string]any)
	metadata, inner := map[string]any{}, map[string]any{}
	for name, value := range from {
		if name == "labels" || name == "annotations" {
			inner[name] = value
		} else {
			metadata[name] = value
		}
	}
	template := map[string]any{"metadata": inner, "spec": pod["spec"]}
	if kind == "CronJob" {
		return map[string]any{"apiVersion": "batch/v1", "kind": kind, "metadata": metadata, "spec": map[string]any{"schedule": "0 0 * * *", "jobTemplate": map[string]any{"spec": map[string]any{"template": withRestartPolicy(template)}}}}
	}
	labels, _ := inner["labels"].(map[string]any)
	selected := map[string]any{"app": "selected"}
	all := map[string]any{"app": "selected"}
	maps.Copy(all, labels)
	inner["labels"] = all
	return map[string]any{"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": map[string]any{"selector": map[string]any{"matchLabels": selected}, "template": template}}
}

func withRestartPolicy(template map[string]any) map[string]any {
	spec := map[string]any{"restartPolicy": "Never"}
	given, _ := template["spec"].(map[string]any)
	maps.Copy(spec, given)
	return map[string]any{"metadata": template["metadata"], "spec": spec}
}

// Resource returns the resource of a kind of these objects.
func Resource(kind string) string { return strings.ToLower(kind) + "s" }
