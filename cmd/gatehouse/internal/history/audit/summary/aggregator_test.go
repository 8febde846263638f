package summary_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/summary"
)

func object(kind, namespace, name string) audit.Object {
	gvk := corev1.SchemeGroupVersion.WithKind(kind)
	if kind == "Deployment" {
		gvk = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}
	}
	return audit.Object{GroupVersionKind: gvk, Namespace: namespace, Name: name}
}

func result(o audit.Object, status audit.Status, rule string) audit.Result {
	return audit.Result{Object: o, Status: status, Kind: "AdmissionPolicy", Policy: "limits", Rule: rule, Message: "set it"}
}

// TestSummary checks that an object counts once for each rule and status, and where it is.
func TestSummary(t *testing.T) {
	t.Parallel()
	a := summary.New(1)
	first, second, third := object("Pod", "shop", "a"), object("Deployment", "shop", "b"), object("Namespace", "", "c")
	a.Object(first)
	for _, binding := range []string{"one", "two"} {
		r := result(first, audit.Fail, "memory")
		r.Binding = binding
		a.Result(r)
	}
	a.Result(result(first, audit.Warn, "memory"))
	a.Result(result(first, audit.Warn, "cpu"))
	a.Injection(first, "proxy", audit.Stale)
	a.Object(second)
	a.Result(result(second, audit.Fail, "memory"))
	exempt := result(second, audit.Skip, "cpu")
	exempt.Exception = "shop/legacy"
	a.Result(exempt)
	allowed := result(second, audit.Skip, "cpu")
	allowed.Baseline = "shop/baseline"
	a.Result(allowed)
	a.Injection(second, "proxy", audit.Current)
	a.Injection(second, "forged", audit.Extra)
	a.Object(third)
	a.Result(result(third, audit.Error, ""))
	a.Result(result(third, audit.Pass, "memory"))
	a.Result(result(third, audit.Skip, "user"))

	got := a.Summary()
	if got.Objects != 3 || got.Totals != (summary.Counts{Fail: 2, Warn: 1, Error: 1, Excepted: 1, Skip: 1, Baselined: 1}) {
		t.Errorf("got %d objects and totals %+v", got.Objects, got.Totals)
	}
	type row struct {
		rule       string
		counts     summary.Counts
		namespaces []summary.Named
		examples   int
	}
	var rows []row
	for _, r := range got.Rules {
		rows = append(rows, row{r.Rule, r.Counts, r.Namespaces, len(r.Examples)})
	}
	want := []row{
		{"memory", summary.Counts{Fail: 2, Warn: 1}, []summary.Named{{Name: "shop", Objects: 2}}, 2},
		{"", summary.Counts{Error: 1}, []summary.Named{}, 1},
		{"cpu", summary.Counts{Warn: 1, Excepted: 1, Baselined: 1}, []summary.Named{{Name: "shop", Objects: 1}}, 3},
		{"user", summary.Counts{Skip: 1}, []summary.Named{}, 0},
	}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("got rules\n%+v, want\n%+v", rows, want)
	}
	if !reflect.DeepEqual(got.Exceptions, []summary.Named{{Name: "shop/legacy", Objects: 1}}) {
		t.Errorf("got exceptions %v", got.Exceptions)
	}
	if !reflect.DeepEqual(got.Baselines, []summary.Named{{Name: "shop/baseline", Objects: 1}}) {
		t.Errorf("got baselines %v", got.Baselines)
	}
	if len(got.Injection) != 2 || got.Injection[1].States[audit.Stale] != 1 || got.Injection[1].States[audit.Current] != 1 || len(got.Injection[1].States) != len(summary.States()) {
		t.Errorf("got injection %+v", got.Injection)
	}
}
