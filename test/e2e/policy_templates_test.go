package e2e

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// deployment is a Deployment without pods, whose template meets one policy.
func (b *beyond) deployment(name, policy string, edits ...func(*corev1.PodTemplateSpec)) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name, "beyond": policy}, Annotations: map[string]string{}},
				Spec:       pod("").Spec,
			},
		},
	}
	for _, edit := range edits {
		edit(&d.Spec.Template)
	}
	return d
}

func foreign(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "other.example/app:1" }

// templates are checked as the pods that they will become.
func (b *beyond) templates(t *testing.T) {
	apps, batch := b.client.AppsV1(), b.client.BatchV1()
	deploy := func(d *appsv1.Deployment) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := apps.Deployments(beyondNamespace).Create(ctx, d, dryRun)
			return err
		}
	}
	cron := func(edits ...func(*corev1.PodTemplateSpec)) func(context.Context) error {
		template := b.deployment("cron", "images", edits...).Spec.Template
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		return func(ctx context.Context) error {
			_, err := batch.CronJobs(beyondNamespace).Create(ctx, &batchv1.CronJob{
				ObjectMeta: metav1.ObjectMeta{Name: "cron"},
				Spec:       batchv1.CronJobSpec{Schedule: "0 0 * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}},
			}, dryRun)
			return err
		}
	}
	anything, err := dynamic.NewForConfig(b.Config())
	must(t, err)
	rollouts := anything.Resource(schema.GroupVersionResource{Group: "beyond.example.com", Version: "v1", Resource: "rollouts"}).Namespace(beyondNamespace)
	rollout := func(edits ...func(*corev1.PodTemplateSpec)) func(context.Context) error {
		template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&b.deployment("rollout", "images", edits...).Spec.Template)
		must(t, err)
		return func(ctx context.Context) error {
			_, err := rollouts.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "beyond.example.com/v1", "kind": "Rollout", "metadata": map[string]any{"name": "r"}, "spec": map[string]any{"template": template},
			}}, dryRun)
			return err
		}
	}
	change := func(patch string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := apps.Deployments(beyondNamespace).Patch(ctx, "bad-before", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRun.DryRun})
			return err
		}
	}
	declining := func(p *corev1.PodTemplateSpec) { p.Annotations[injectAnnotation] = "false" }
	for name, c := range map[string]struct {
		request func(context.Context) error
		wants   string // "" is admitted
	}{
		"Deployment":                        {deploy(b.deployment("d", "images")), ""},
		"Deployment, refused":               {deploy(b.deployment("d", "images", foreign)), "AdmissionPolicy 'images' denied request: spec.template: not from our registry: app"},
		"Deployment, by an exception":       {deploy(b.deployment("legacy-app", "images", foreign)), ""},
		"Deployment, injected":              {deploy(b.deployment("d", "mesh")), ""},
		"Deployment, not injected":          {deploy(b.deployment("d", "mesh", declining)), "AdmissionPolicy 'mesh' denied request: spec.template: not in the mesh"},
		"CronJob":                           {cron(), ""},
		"CronJob, refused":                  {cron(foreign), "AdmissionPolicy 'images' denied request: spec.jobTemplate.spec.template: not from our registry: app"},
		"custom kind":                       {rollout(), ""},
		"custom kind, refused":              {rollout(foreign), "AdmissionPolicy 'images' denied request: spec.template: not from our registry: app"},
		"upstream's policy, by annotation":  {deploy(b.deployment("d", "upstream", func(p *corev1.PodTemplateSpec) { p.Spec.NodeName = "n" })), "ValidatingAdmissionPolicy 'with-templates' with binding 'with-templates' denied request: spec.template: pods choose no node"},
		"template that was bad, scaled":     {change(`{"spec":{"replicas":1}}`), ""},
		"template that was bad, labelled":   {change(`{"spec":{"template":{"metadata":{"labels":{"more":"x"}}}}}`), ""},
		"template that was bad, made worse": {change(`{"spec":{"template":{"spec":{"containers":[{"name":"more","image":"other.example/more:1"}]}}}}`), "AdmissionPolicy 'images' denied request: spec.template: not from our registry: more, app"},
		"template that was bad, repaired":   {change(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"registry.example/app:2"}]}}}}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.request(t.Context())
			if got := admittedOrNot(err); got != c.wants || got == "" && err != nil {
				t.Errorf("got %v, want %q", err, c.wants)
			}
		})
	}
}

// causes tell programs every violation.
func (b *beyond) causes(t *testing.T) {
	bad := func(labels map[string]string, spec *corev1.PodSpec) {
		labels["standard"] = "true"
		spec.HostNetwork, spec.HostPID, spec.Containers[0].Image = true, true, "other.example/app:1"
	}
	p := pod("worst", labelled("beyond", "images"))
	bad(p.Labels, &p.Spec)
	_, podErr := b.client.CoreV1().Pods(beyondNamespace).Create(t.Context(), p, dryRun)
	d := b.deployment("worst", "images")
	bad(d.Spec.Template.Labels, &d.Spec.Template.Spec)
	_, deploymentErr := b.client.AppsV1().Deployments(beyondNamespace).Create(t.Context(), d, dryRun)
	for kind, err := range map[string]error{"pods": podErr, "deployments": deploymentErr} {
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Details == nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		path := map[string]string{"deployments": "spec.template"}[kind]
		details := status.Status().Details
		if details.Name != "worst" || details.Kind != kind || status.Status().Code != 403 || status.Status().Reason != metav1.StatusReasonForbidden {
			t.Errorf("%s: the status is %+v", kind, status.Status())
		}
		wants := []struct{ rule, text string }{
			{"validations[0]", "AdmissionPolicy 'images' denied request: "},
			{"validations[1]", "the network of the host is not for pods"},
			{"podSecurity.hostNamespaces", `violates PodSecurity "baseline:v1.37": host namespaces (hostNetwork=true, hostPID=true)`},
		}
		if len(details.Causes) != len(wants) {
			t.Fatalf("%s: the causes are %+v", kind, details.Causes)
		}
		for i, want := range wants {
			cause := details.Causes[i]
			if string(cause.Type) != want.rule || cause.Field != cmp.Or(path, want.rule) || !strings.Contains(cause.Message, want.text) {
				t.Errorf("%s: cause %d is %+v, want %+v", kind, i, cause, want)
			}
		}
		if !strings.Contains(err.Error(), byWebhook+"3 violations:\n1. ") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
