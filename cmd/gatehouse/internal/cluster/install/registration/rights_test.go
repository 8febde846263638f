package registration

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
)

// withRights are the ways to ask for rights.
func withRights() map[string]Options {
	return map[string]Options{
		"self-signed":               options(func(o *Options) { o.SelfSigned = true }),
		"by cert-manager":           options(),
		"by a robot":                options(func(o *Options) { o.SelfSigned, o.ServiceAccount = true, "robot" }),
		"in default":                options(func(o *Options) { o.SelfSigned, o.Namespace = true, "default" }),
		"by URL":                    options(withURL, func(o *Options) { o.CABundle, o.SelfSigned = nil, true }),
		"of resources":              options(func(o *Options) { o.SelfSigned, o.CustomResources = true, true }),
		"of resources, and logouts": options(func(o *Options) { o.SelfSigned, o.CustomResources, o.Logouts = true, true, true }),
		"of resources, mounted":     options(func(o *Options) { o.CustomResources, o.Name = true, "gate" }),
		"of resources, by URL":      options(withURL, func(o *Options) { o.CustomResources, o.Spec = true, spec() }),
		"managed":                   options(func(o *Options) { o.SelfSigned, o.CustomResources, o.Managed = true, true, true }),
		"managed, mounted":          options(func(o *Options) { o.CustomResources, o.Managed, o.Name = true, true, "gate" }),
		"of no policy":              options(func(o *Options) { o.SelfSigned, o.Spec = true, spec() }),
	}
}

// What a role grants is about one name wherever that can be known in advance, and everything in it has its reason
// where people read it.
func TestRightsAreNarrowAndExplained(t *testing.T) {
	t.Parallel()
	for name, o := range withRights() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			roles := 0
			for _, d := range decoded(t, admissionOf(t, o).Documents) {
				role, ok := d.object.(*rbacv1.ClusterRole)
				if !ok {
					continue
				}
				roles++
				for i := range role.Rules {
					checkNarrow(t, &role.Rules[i])
				}
				checkExplained(t, d.text, role.Rules)
			}
			if roles < 2 {
				t.Errorf("there are %d roles", roles)
			}
		})
	}
}

// decoded are documents taken apart: each with its object, of which a role may be of either kind.
func decoded(t *testing.T, documents []Document) (list []Document) {
	t.Helper()
	stream, err := YAML("", documents)
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(stream), "---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			t.Fatal(err)
		}
		var object any
		switch kind.Kind {
		case "Role", "ClusterRole":
			object = &rbacv1.ClusterRole{}
		case "ClusterRoleBinding":
			object = &rbacv1.ClusterRoleBinding{}
		case "ValidatingAdmissionPolicy":
			object = &admissionregistrationv1.ValidatingAdmissionPolicy{}
		case "ValidatingAdmissionPolicyBinding":
			object = &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		default:
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		list = append(list, Document{text: text, object: object})
	}
	return list
}

func checkNarrow(t *testing.T, rule *rbacv1.PolicyRule) {
	t.Helper()
	if slices.Contains(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs), "*") || len(rule.NonResourceURLs) > 0 {
		t.Errorf("%v is about everything", rule)
	}
	if !slices.IsSorted(rule.Verbs) {
		t.Errorf("%v is not in order", rule)
	}
	// The names of Leases are those of pods, Events have names of their own, policies are about any namespace, profiles
	// about any pod, and custom resources and compiled policies have what names people give them.
	free := slices.Concat([]string{"leases", "events", "namespaces", "pods", "validatingadmissionpolicies"}, install.CustomResources())
	for _, resource := range install.CustomResources() {
		free = append(free, resource+"/status")
	}
	onlyCreate := slices.Equal(rule.Verbs, []string{"create"})
	if len(rule.ResourceNames) == 0 && !onlyCreate && !slices.Contains(free, rule.Resources[0]) {
		t.Errorf("%v is about all names", rule)
	}
	if len(rule.ResourceNames) > 0 && slices.Contains(rule.Verbs, "create") {
		t.Errorf("%v: creating cannot be limited to a name", rule)
	}
}

// checkExplained looks for a comment in front of each rule that names each verb and says something of it.
func checkExplained(t *testing.T, text string, rules []rbacv1.PolicyRule) {
	t.Helper()
	parts := strings.Split(text, "- apiGroups:")
	if len(parts) != len(rules)+1 {
		t.Fatalf("%d rules in:\n%s", len(parts)-1, text)
	}
	for i, rule := range rules {
		comment := parts[i][strings.LastIndex(parts[i], "\n#")+1:]
		if !strings.HasPrefix(comment, "# ") {
			t.Errorf("there is no comment in front of rule %d:\n%s", i, text)
		}
		var explained []string
		for line := range strings.Lines(parts[i]) {
			line, ok := strings.CutPrefix(line, "# ")
			if verbs, why, found := strings.Cut(line, ": "); ok && found && len(why) > len("why") {
				explained = append(explained, strings.Split(verbs, ", ")...)
			}
		}
		slices.Sort(explained)
		if !slices.Equal(explained, rule.Verbs) {
			t.Errorf("the comment explains %q, and the rule has %q:\n%s", explained, rule.Verbs, text)
		}
	}
}

// The command line is the one that the rights are for.
func TestServe(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"self-signed":               "gatehouse serve --config DIR --in-cluster --self-signed gatehouse.gatehouse-system.svc,gatehouse.gatehouse-system.svc.cluster.local,gatehouse.gatehouse-system,gatehouse --self-signed-secret gatehouse-system/gatehouse-ca",
		"by cert-manager":           "gatehouse serve --config DIR --in-cluster --tls-cert FILE --tls-key FILE --registration gatehouse",
		"in default":                "gatehouse serve --config DIR --in-cluster --self-signed gatehouse.gatehouse-system.svc,gatehouse.gatehouse-system.svc.cluster.local,gatehouse.gatehouse-system,gatehouse --self-signed-secret default/gatehouse-ca",
		"by URL":                    "gatehouse serve --config DIR --in-cluster --self-signed 192.0.2.10 --self-signed-secret gatehouse-system/gatehouse-ca",
		"of others":                 "",
		"of resources":              "gatehouse serve --custom-resources --in-cluster --self-signed gatehouse.gatehouse-system.svc,gatehouse.gatehouse-system.svc.cluster.local,gatehouse.gatehouse-system,gatehouse --self-signed-secret gatehouse-system/gatehouse-ca",
		"of resources, and logouts": "gatehouse serve --custom-resources --back-channel-logout 24h --in-cluster --self-signed gatehouse.gatehouse-system.svc,gatehouse.gatehouse-system.svc.cluster.local,gatehouse.gatehouse-system,gatehouse --self-signed-secret gatehouse-system/gatehouse-ca",
		"of resources, mounted":     "gatehouse serve --custom-resources --in-cluster --tls-cert FILE --tls-key FILE --registration gate",
		"of resources, by URL":      "gatehouse serve --config DIR --custom-resources --in-cluster --tls-cert FILE --tls-key FILE",
		"another name":              "gatehouse serve --config DIR --in-cluster --tls-cert FILE --tls-key FILE --registration gate",
	}
	all := withRights()
	all["of others"] = options(withURL)
	all["another name"] = options(func(o *Options) { o.Name = "gate" })
	for name, want := range want {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := ForAdmission(all[name])
			if err != nil || a.Serve != want {
				t.Errorf("got %q, %v, want %q", a.Serve, err, want)
			}
		})
	}
}
