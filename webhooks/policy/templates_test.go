package policy_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// podsOnly returns an AdmissionPolicy about the creation of pods.
func podsOnly(spec string) string {
	return `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: pods}
spec: {matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]},
  validationActions: [Deny], ` + spec + `}`
}

func TestWorkloadTemplates(t *testing.T) {
	t.Parallel()
	const (
		template   = `{metadata: {labels: {app: web}, namespace: other, name: other}, spec: {containers: [{name: a, image: bad/x}]}}`
		deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 1, template: ` + template + `}}`
		cronJob    = `{apiVersion: batch/v1, kind: CronJob, metadata: {name: web, namespace: shop}, spec: {jobTemplate: {spec: {template: ` + template + `}}}}`
		rollout    = `{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: web, namespace: shop}, spec: {template: ` + template + `}}`
		rollouts   = `{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyConfiguration, workloads: [{group: argoproj.io, kind: Rollout, resource: rollouts, template: spec.template}]}`
		denied     = "AdmissionPolicy 'pods' denied request: spec.template: good images only"
	)
	images := podsOnly(`validations: [{expression: "object.spec.containers.all(c, c.image.startsWith('good/'))", message: good images only}]`)
	shown := func(expression string) string {
		return podsOnly(`validations: [{expression: "false", messageExpression: "` + expression + `"}]`)
	}
	upstream := denyAll("p", `matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}`, "")
	for _, tc := range []struct {
		name, documents, object, old string
		want                         string
	}{
		{"a Deployment", images, deployment, "", denied},
		{"a CronJob", images, cronJob, "", strings.Replace(denied, "spec.template", "spec.jobTemplate.spec.template", 1)},
		{"a custom kind that is configured", documents(images, rollouts), rollout, "", denied},
		{"a custom kind that is not", images, rollout, "", "allowed"},
		{"a template that is right", images, strings.Replace(deployment, "bad/x", "good/x", 1), "", "allowed"},
		{"a workload without a template", images, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {}}`, "", "allowed"},
		{"switched off", podsOnly(`workloadTemplates: Ignore, validations: [{expression: "false"}]`), deployment, "", "allowed"},
		{"upstream's policies do not", upstream, deployment, "", "allowed"},
		{"upstream's policies by annotation", strings.Replace(upstream, "{name: p}", "{name: p, annotations: {gatehouse.dev/workload-templates: Check}}", 1), deployment, "", "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: spec.template: p"},
		{"a policy that is not about the creation of pods", strings.Replace(images, "CREATE, UPDATE", "UPDATE", 1), deployment, "", "allowed"},

		{"an update that changes the template", images, deployment, strings.Replace(deployment, "bad/x", "good/x", 1), denied},
		{"an update that does not", images, deployment, strings.Replace(deployment, "replicas: 1", "replicas: 2", 1), "allowed"},
		{"an update that does not, where every violation counts", strings.Replace(images, "validations:", "existingViolations: Deny, validations:", 1), deployment, strings.Replace(deployment, "replicas: 1", "replicas: 2", 1), denied},
		{"an update that leaves the violation as it was", images, strings.Replace(deployment, "app: web", "app: x", 1), deployment, "allowed"},

		{"the pod's namespace", shown("object.metadata.namespace + request.namespace"), deployment, "", "AdmissionPolicy 'pods' denied request: spec.template: shopshop"},
		{"the pod's names", shown("has(object.metadata.name) ? 'named' : string(object.metadata.generateName)"), deployment, "", "AdmissionPolicy 'pods' denied request: spec.template: web-"},
		{"the request", shown("request.operation + ' ' + request.kind.kind + ' ' + request.resource.resource + ' ' + request.requestResource.resource + ' ' + request.userInfo.username"), deployment, "", "AdmissionPolicy 'pods' denied request: spec.template: CREATE Pod pods pods alice"},
		{"selected by the pod's labels", strings.Replace(images, "matchConstraints: {", "matchConstraints: {objectSelector: {matchLabels: {app: web}}, ", 1), deployment, "", denied},
		{"not selected by the pod's labels", strings.Replace(images, "matchConstraints: {", "matchConstraints: {objectSelector: {matchLabels: {app: db}}, ", 1), deployment, "", "allowed"},
		{"a standard", podsOnly(`podSecurity: {level: baseline}`), strings.Replace(deployment, "image: bad/x", "image: x, securityContext: {privileged: true}", 1), "", `AdmissionPolicy 'pods' denied request: spec.template: violates PodSecurity "baseline:latest": privileged (container "a" must not set securityContext.privileged=true)`},
		{"excepted by the workload's name", documents(images, exceptionOf("gatehouse-system", "policies: [{name: pods}], match: {names: [web]}")), deployment, "", "allowed"},
		{"an update that does not, where a rule is about who asks", podsOnly(`validations: [{expression: "request.userInfo.username == 'admin'", message: admins}]`), strings.Replace(deployment, "replicas: 1", "replicas: 2", 1), deployment, "AdmissionPolicy 'pods' denied request: spec.template: admins"},
		{"labels that cannot be read", strings.Replace(images, "matchConstraints: {", "matchConstraints: {objectSelector: {matchLabels: {app: web}}, ", 1), strings.Replace(deployment, "labels: {app: web}", "labels: {app: web, a: 5}", 1), "", "cannot decide"},
		{"a policy about both", podsOnly(`validations: [{expression: "object.kind == 'Pod'", message: "not a pod"}, {expression: "object.kind != 'Pod'", message: "a pod"}]`), deployment, "", "AdmissionPolicy 'pods' denied request: spec.template: a pod"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			req := review(t, tc.object)
			if tc.old != "" {
				req = review(t, tc.object, updating(t, tc.old))
			}
			response := decide(t, compile(t, tc.documents), req)
			got := verdict(response)
			if got == "denied" {
				got = message(response)
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestTemplatesAfterInjection holds that policies see what injection makes of the
// pod, and that trouble with it does not keep workloads from being created: their
// pods are checked again.
func TestTemplatesAfterInjection(t *testing.T) {
	t.Parallel()
	const deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {metadata: {}, spec: {containers: [{name: a}]}}}}`
	documents := podsOnly(`validations: [{expression: "object.spec.containers.all(c, c.name != 'mesh')", message: no mesh}]`)
	for _, tc := range []struct {
		name, refusal string
		err           error
		want, warning string
	}{
		{name: "injected", want: "AdmissionPolicy 'pods' denied request: spec.template: no mesh"},
		{name: "refused", refusal: "a conflict", want: "allowed", warning: "spec.template: the pods will be refused: a conflict"},
		{name: "cannot decide", err: errors.New("no preset"), want: "allowed", warning: "spec.template: checked without sidecars: no preset"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, documents)
			spec.Inject = func(_ context.Context, namespace, workload string, pod []byte) ([]byte, string, error) {
				if namespace != "shop" || workload != "Deployment/web" {
					t.Errorf("asked about %s in %s", workload, namespace)
				}
				if tc.err != nil || tc.refusal != "" {
					return pod, tc.refusal, tc.err
				}
				return []byte(strings.Replace(string(pod), `"a"`, `"mesh"`, 1)), "", nil
			}
			set, err := policy.Compile(spec)
			must(t, err)
			response := decide(t, set, review(t, deployment))
			got := verdict(response)
			if got == "denied" {
				got = message(response)
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if strings.Join(response.Warnings, "") != tc.warning {
				t.Errorf("warnings %q", response.Warnings)
			}
		})
	}
}
