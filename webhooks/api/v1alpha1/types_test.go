package v1alpha1_test

import (
	"reflect"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// TestSpecExtendsUpstreams holds that an AdmissionPolicy has every field of a ValidatingAdmissionPolicy, and that Upstream returns
// it: a field that a later version of Kubernetes adds must not be missing here.
func TestSpecExtendsUpstreams(t *testing.T) {
	t.Parallel()
	ours := reflect.TypeFor[v1alpha1.AdmissionPolicySpec]()
	fields := strict.Fields(ours)
	filled := reflect.New(ours).Elem()
	for name, want := range strict.Fields(reflect.TypeFor[admissionregistrationv1.ValidatingAdmissionPolicySpec]()) {
		if got := fields[name]; got != want && name != "validations" {
			t.Errorf("%s is of type %v, and upstream's of %v", name, got, want)
		}
	}
	for field := range ours.Fields() {
		value := filled.FieldByIndex(field.Index)
		switch value.Kind() { //nolint:exhaustive // upstream has no others
		case reflect.Pointer:
			value.Set(reflect.New(value.Type().Elem()))
		case reflect.Slice:
			value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		default:
		}
	}
	spec, _ := reflect.TypeAssert[v1alpha1.AdmissionPolicySpec](filled)
	upstream := reflect.ValueOf(*spec.Upstream())
	for i := range upstream.NumField() {
		if upstream.Field(i).IsZero() {
			t.Errorf("Upstream leaves out %s", upstream.Type().Field(i).Name)
		}
	}
}

func TestRuleName(t *testing.T) {
	t.Parallel()
	spec := v1alpha1.AdmissionPolicySpec{Validations: []v1alpha1.Validation{{}, {Name: "memory-limit"}}}
	if a, b := spec.RuleName(0), spec.RuleName(1); a != "validations[0]" || b != "validations[memory-limit]" {
		t.Errorf("got %s and %s", a, b)
	}
}
