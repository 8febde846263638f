package policy_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// BenchmarkDispatcher is what the API server's own machinery takes for the
// policies of BenchmarkReview, once it has decoded the object: what it is given
// is the typed pod.
func BenchmarkDispatcher(b *testing.B) {
	req := review(b, readFile(b, "testdata/pod.json"))
	pod := typed(b, req.Object.Raw)
	info := &user.DefaultInfo{Name: req.UserInfo.Username, Groups: req.UserInfo.Groups}
	interfaces := apiserveradmission.NewObjectInterfacesFromScheme(clientgoscheme.Scheme)
	for _, bench := range []struct {
		name, template string
		matching, all  int
	}{
		{"small/1 policy", smallPolicy, 1, 1},
		{"small/10 policies", smallPolicy, 10, 10},
		{"small/10 of 1000 match", smallPolicy, 10, 1000},
		{"typical/1 policy", typicalPolicy, 1, 1},
		{"typical/10 policies", typicalPolicy, 10, 10},
	} {
		b.Run(bench.name, func(b *testing.B) {
			spec := many(b, bench.template, bench.matching, bench.all)
			spec.Objects = specOf(b, strings.TrimPrefix(differentialContext, "\n")).Objects
			u := newUpstream(b, spec)
			b.ReportAllocs()
			for b.Loop() {
				attributes := apiserveradmission.NewAttributesRecord(pod, nil, schema.GroupVersionKind(req.Kind), req.Namespace, req.Name,
					schema.GroupVersionResource(req.Resource), req.SubResource, apiserveradmission.Operation(req.Operation), nil, false, info)
				must(b, u.dispatcher.Dispatch(b.Context(), attributes, interfaces, u.hooks))
			}
		})
	}
}
