#!/bin/sh
# audit-annotation-denies.sh: an audit annotation of a ValidatingAdmissionPolicy denies, whatever the binding's actions.
#
#	sh findings/audit-annotation-denies.sh
#
# With validationActions [Audit], or [Warn], a rule that is false or fails is only recorded. An expression of auditAnnotations that fails, as for a key that is not there,
# denies the request with such a binding too, unless failurePolicy is Ignore. So a policy that is tried out with Audit can refuse requests by what it only wants to note.
# A null leaves the annotation out and denies nothing. The plugin is the API server's own.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	registration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	dynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
)

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	changed := false
	for _, c := range []struct {
		name, rule, annotation string
		onFailure              registration.FailurePolicyType
		want                   bool
	}{
		{"a rule that fails", "object.data.absent == 'x'", "'value'", registration.Fail, true},
		{"a rule that is false", "false", "'value'", registration.Fail, true},
		{"an audit annotation that fails", "true", "string(object.data.absent)", registration.Fail, false},
		{"an audit annotation that fails, failurePolicy Ignore", "true", "string(object.data.absent)", registration.Ignore, true},
		{"an audit annotation that is null", "true", "null", registration.Fail, true},
	} {
		err := review(c.rule, c.annotation, c.onFailure)
		fmt.Printf("%s: admitted %t\n", c.name, err == nil)
		if err != nil {
			fmt.Println("   ", err)
		}
		changed = changed || (err == nil) != c.want
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}

// review returns what the plugin says to the creation of a ConfigMap under a policy whose only binding has the action Audit.
func review(rule, annotation string, onFailure registration.FailurePolicyType) error {
	equivalent := registration.Equivalent
	policy := &registration.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "policy"},
		Spec: registration.ValidatingAdmissionPolicySpec{
			FailurePolicy: &onFailure,
			MatchConstraints: &registration.MatchResources{
				MatchPolicy: &equivalent, NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
				ResourceRules: []registration.NamedRuleWithOperations{{RuleWithOperations: registration.RuleWithOperations{
					Operations: []registration.OperationType{registration.Create},
					Rule:       registration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				}}},
			},
			Validations:      []registration.Validation{{Expression: rule}},
			AuditAnnotations: []registration.AuditAnnotation{{Key: "key", ValueExpression: annotation}},
		},
	}
	binding := &registration.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "binding"},
		Spec:       registration.ValidatingAdmissionPolicyBindingSpec{PolicyName: "policy", ValidationActions: []registration.ValidationAction{registration.Audit}},
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client := fake.NewClientset(policy, binding, &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin, err := validating.NewPlugin(nil)
	check(err)
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(scheme.Scheme))
	plugin.SetDynamicClient(dynamic.NewSimpleDynamicClient(scheme.Scheme))
	plugin.SetDrainedNotification(ctx.Done())
	plugin.SetUnconditionalAuthorizer(authorizerfactory.NewAlwaysAllowAuthorizer())
	check(plugin.ValidateInitialization())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	object := &core.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "object", Namespace: "default"}, Data: map[string]string{"a": "b"}}
	return plugin.Validate(ctx, admission.NewAttributesRecord(object, nil, core.SchemeGroupVersion.WithKind("ConfigMap"), "default", "object",
		core.SchemeGroupVersion.WithResource("configmaps"), "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "somebody"}),
		admission.NewObjectInterfacesFromScheme(scheme.Scheme))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
EOF
cat >go.mod <<'EOF'
module finding

go 1.26

require (
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/apiserver v0.37.2
	k8s.io/client-go v0.37.2
	k8s.io/klog/v2 v2.140.0
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: k8s.io/api v0.37.2, k8s.io/apimachinery v0.37.2, k8s.io/apiserver v0.37.2, k8s.io/client-go v0.37.2, k8s.io/klog/v2 v2.140.0"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
