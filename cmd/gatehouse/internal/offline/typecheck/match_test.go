package typecheck_test

import (
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	schemas := typecheck.New(nil)
	type list = []string
	for name, c := range map[string]struct {
		groups, versions, resources list
		want                        string
	}{
		"kinds":                  {list{"apps"}, list{"v1"}, list{"statefulsets", "deployments"}, "[apps/v1 Deployment apps/v1 StatefulSet] true"},
		"several groups":         {list{"", "apps"}, list{"v1"}, list{"pods", "deployments"}, "[v1 Pod apps/v1 Deployment] true"},
		"irregular plurals":      {list{"", "networking.k8s.io"}, list{"v1"}, list{"endpoints", "ingresses", "networkpolicies"}, "[v1 Endpoints networking.k8s.io/v1 Ingress networking.k8s.io/v1 NetworkPolicy] true"},
		"status and resize":      {list{""}, list{"v1"}, list{"pods/status", "pods/resize", "pods/ephemeralcontainers"}, "[v1 Pod] true"},
		"scale":                  {list{"apps"}, list{"v1"}, list{"deployments/scale"}, "[autoscaling/v1 Scale] true"},
		"connections":            {list{""}, list{"v1"}, list{"pods/exec", "pods/attach", "pods/portforward", "services/proxy"}, "[v1 PodAttachOptions v1 PodExecOptions v1 PodPortForwardOptions v1 ServiceProxyOptions] true"},
		"creations":              {list{""}, list{"v1"}, list{"pods/eviction", "pods/binding", "serviceaccounts/token"}, "[v1 Binding authentication.k8s.io/v1 TokenRequest policy/v1 Eviction] true"},
		"a wildcard":             {list{"apps"}, list{"v1"}, list{"*"}, "[] false"},
		"all groups":             {list{"*"}, list{"v1"}, list{"pods"}, "[] false"},
		"an unknown group":       {list{"example.com"}, list{"v1"}, list{"things"}, "[] false"},
		"an unknown subresource": {list{""}, list{"v1"}, list{"pods/other"}, "[] false"},
		"a resource that is not": {list{"apps"}, list{"v1"}, list{"pods"}, "[] true"},
		"an old version":         {list{"apps"}, list{"v1beta7"}, list{"deployments"}, "[] false"},
		"more than are checked": {
			list{""},
			list{"v1"},
			list{"pods", "services", "secrets", "configmaps", "nodes", "namespaces", "endpoints", "events", "limitranges", "resourcequotas", "serviceaccounts"},
			"[v1 ConfigMap v1 Endpoints v1 Event v1 LimitRange v1 Namespace v1 Node v1 Pod v1 ResourceQuota v1 Secret v1 Service] false",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kinds, all := typecheck.New(nil).Match([]admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Rule: admissionregistrationv1.Rule{APIGroups: c.groups, APIVersions: c.versions, Resources: c.resources},
			}}})
			if got := fmt.Sprint(kinds, all); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	if got := schemas.Groups("deployments"); fmt.Sprint(got) != "[apps]" {
		t.Errorf("deployments are in %v", got)
	}
}
