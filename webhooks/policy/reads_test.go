package policy

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

func TestReadsManagedFields(t *testing.T) {
	t.Parallel()
	env := environment.MustBaseEnvSet(version.MustParseMajorMinor(CompatibilityVersion)).StoredExpressionsEnv()
	for expression, want := range map[string]bool{
		// Whatever of these is read, managed fields are not.
		`object.spec.replicas <= 5`:                                                                false,
		`has(object.metadata.labels) && object.metadata.labels["a"] == "b"`:                        false,
		`object.metadata.name == oldObject.metadata.name`:                                          false,
		`object.spec.containers.all(c, c.image.startsWith("a/"))`:                                  false,
		`object.?metadata.?annotations["a"].orValue("") == ""`:                                     false,
		`object["metadata"]["labels"].exists(k, k == "a")`:                                         false,
		`!has(oldObject.metadata.deletionTimestamp)`:                                               false,
		`object.spec == oldObject.spec`:                                                            false,
		`request.userInfo.username == "jane"`:                                                      false,
		`variables.labels.size() > 0 && params.data.managedFields == ""`:                           false,
		`[1, 2].exists(i, object.spec.x == i)`:                                                     false,
		`object.spec.metadata.managedFields == 1`:                                                  false,
		`"metadata" in object.spec ? object.metadata.uid == "" : namespaceObject.metadata == null`: false,
		// These may show them.
		`has(object.metadata.managedFields)`:                         true,
		`object.metadata.managedFields.size() > 0`:                   true,
		`oldObject.metadata["managedFields"] == []`:                  true,
		`object.?metadata[?"managedFields"].hasValue()`:              true,
		`object.metadata == oldObject.metadata`:                      true,
		`object == oldObject`:                                        true,
		`object.metadata.exists(k, k == "managedFields")`:            true,
		`object[request.name].managedFields == []`:                   true,
		`object.metadata["managed" + "Fields"] == []`:                true,
		`"managedFields" in object.metadata`:                         true,
		`[object].all(o, !has(o.metadata.managedFields))`:            true,
		`object.all(k, object[k] == null)`:                           true,
		`cel.bind(m, object.metadata, !has(m.managedFields))`:        true,
		`(request.dryRun ? object : oldObject).metadata.name == "a"`: true,
		`string(object.metadata) == ""`:                              true,
		`{"a": object}.a.metadata.managedFields == []`:               true,
		`object.metadata.?managedFields.hasValue()`:                  true,
		`dyn(object).metadata.name == ""`:                            true,
		`has(.object.metadata.managedFields)`:                        true,
		`.object != .oldObject`:                                      true,
		`.oldObject.metadata.?managedFields.hasValue()`:              true,
		`not an expression`:                                          true,
	} {
		if got := readsManagedFields(env, []string{"true", expression}); got != want {
			t.Errorf("%s: %v, want %v", expression, got, want)
		}
	}
}

// TestManagedFieldsAreSeen decides by them, in every way to name the object.
func TestManagedFieldsAreSeen(t *testing.T) {
	t.Parallel()
	for _, object := range []string{"object", ".object"} {
		set := compileForTest(t, `has(`+object+`.metadata.managedFields) && `+object+`.metadata.managedFields.all(f, f.manager != "evil")`)
		if !set.managedFields {
			t.Errorf("%s: managed fields are not decoded", object)
		}
	}
	if compileForTest(t, "has(object.metadata.labels)").managedFields {
		t.Error("managed fields are decoded for nobody")
	}
}

// compileForTest is a Set of one policy with one rule.
func compileForTest(t *testing.T, expression string) *Set {
	t.Helper()
	var p Policy
	p.Name = "p"
	p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		},
	}}}
	p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: expression}}
	var b Binding
	b.Name, b.Spec.PolicyName = "b", "p"
	b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	set, err := Compile(Spec{Policies: []Policy{p}, Bindings: []Binding{b}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}
