package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// uninstallOutcome is the outcome for a part of the install.
type uninstallOutcome string

// The outcomes.
const (
	// uninstallFound is a part that is not removed yet.
	uninstallFound uninstallOutcome = "found"
	// uninstallRemoved is a part that is gone.
	uninstallRemoved uninstallOutcome = "removed"
	// uninstallKept is a part that is kept on purpose.
	uninstallKept uninstallOutcome = "kept"
	// uninstallForeign is an object of a part's name that does not belong to the install.
	uninstallForeign uninstallOutcome = "foreign"
	// uninstallFailed is a part that could not be removed or read.
	uninstallFailed uninstallOutcome = "failed"
)

// uninstallPart is an object, or several that could not be listed.
type uninstallPart struct {
	Kind      string           `json:"kind"`
	Namespace string           `json:"namespace,omitempty"`
	Name      string           `json:"name,omitempty"`
	Outcome   uninstallOutcome `json:"outcome"`
	// Message is why it is not removed, or what is removed with it.
	Message string `json:"message,omitempty"`
	// Command removes it by hand.
	Command string `json:"command,omitempty"`

	resource schema.GroupVersionResource
	uid      types.UID
	stage    uninstallStage
	// blocks is true if the program must not be removed before it.
	blocks bool
}

func (p *uninstallPart) String() string {
	parts := slices.DeleteFunc([]string{p.Kind, p.Namespace, p.Name}, func(part string) bool { return part == "" })
	return strings.Join(parts, "/")
}

// fail sets the outcome to failed.
func (p *uninstallPart) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	p.Outcome, p.Message = uninstallFailed, cli.OneLine(err.Error())
}

// uninstallStage is when a part is removed. Each stage ends before the next begins.
type uninstallStage int

const (
	// registrationsStage ends when no API server calls the webhooks.
	registrationsStage uninstallStage = iota
	// programStage ends when no process can create the leftovers again.
	programStage
	leftoversStage
	keptStage
)

// uninstaller removes an install. It is used once, by one goroutine.
type uninstaller struct {
	flags   *uninstallFlags
	client  dynamic.Interface
	kubectl string
	// parts are in the order of their removal.
	parts []*uninstallPart
}

// uninstallResource is a resource of the parts, all of which are v1.
func uninstallResource(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
}

// survey finds the parts. One that cannot be read has failed.
func (u *uninstaller) survey(ctx context.Context) {
	f := u.flags
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		part := &uninstallPart{
			Kind: kind, Name: f.name, stage: registrationsStage,
			resource: uninstallResource("admissionregistration.k8s.io", strings.ToLower(kind)+"s"),
		}
		if object := u.look(ctx, part); object != nil {
			part.judgeRegistration(f, object)
		}
		part.blocks = part.blocks || part.Outcome == uninstallFailed
	}
	if f.registrationsOnly {
		return
	}
	deployment := &uninstallPart{
		Kind: "Deployment", Namespace: f.namespace, Name: f.name, stage: programStage, resource: deployments(),
	}
	if object := u.look(ctx, deployment); object != nil && object.GetLabels()[ourLabel] != ourValue {
		deployment.foreign(`it lacks the label "` + ourLabel + "=" + ourValue + `"`)
	}
	u.surveyLeftovers(ctx)
	u.surveyShared(ctx, deployment.Outcome == uninstallFound)
	u.surveyKept(ctx)
}

const (
	// ourLabel is on the Deployment of every install, with ourValue.
	ourLabel = "app.kubernetes.io/name"
	ourValue = "gatehouse"
	// certificatesLabel on a Secret and on Leases has the name of the Secret, and
	// reportLabel on Leases is usualGroup.
	certificatesLabel = "gatehouse.dev/certificates"
	reportLabel       = "gatehouse.dev/report"
)

func deployments() schema.GroupVersionResource { return uninstallResource("apps", "deployments") }

// lease is a part that is a Lease.
func (u *uninstaller) lease(name string) *uninstallPart {
	return &uninstallPart{
		Kind: "Lease", Namespace: u.flags.namespace, Name: name, stage: leftoversStage,
		resource: uninstallResource("coordination.k8s.io", "leases"),
	}
}

// leases finds those with a label.
func (u *uninstaller) leases(ctx context.Context, label, value string) {
	all := u.lease("")
	err := u.each(ctx, all.resource, label, value, func(o *unstructured.Unstructured) {
		part := u.lease(o.GetName())
		part.Outcome, part.uid, part.Command = uninstallFound, o.GetUID(), u.command(part)
		u.parts = append(u.parts, part)
	})
	if err != nil {
		all.Command = u.kubectl + " -n " + u.flags.namespace + " delete leases -l " + label + "=" + value
		all.fail(ctx, err)
		u.parts = append(u.parts, all)
	}
}

// surveyLeftovers finds the objects that the program has created under the name of the
// install.
func (u *uninstaller) surveyLeftovers(ctx context.Context) {
	f := u.flags
	secret := &uninstallPart{
		Kind: "Secret", Namespace: f.namespace, Name: f.name + "-ca", stage: leftoversStage,
		resource: uninstallResource("", "secrets"),
	}
	if object := u.look(ctx, secret); object != nil && object.GetLabels()[certificatesLabel] == "" {
		secret.foreign(`it lacks the label "` + certificatesLabel + `", so Gatehouse did not create it`)
	}
	u.leases(ctx, certificatesLabel, secret.Name)
}

// surveyShared finds the objects that all installs of a namespace share: the Leases of the
// election and of reports. They are removed with the last install: the one of the default
// name, or one whose Deployment is removed, if there is no other Deployment.
func (u *uninstaller) surveyShared(ctx context.Context, deployed bool) {
	f := u.flags
	election := u.lease(install.DefaultGroup + "-status")
	if !deployed && f.name != install.DefaultGroup {
		return
	}
	var other string
	err := u.each(ctx, deployments(), ourLabel, ourValue, func(o *unstructured.Unstructured) {
		if o.GetName() != f.name {
			other = o.GetName()
		}
	})
	switch {
	case err == nil && other == "":
		u.look(ctx, election)
		u.leases(ctx, reportLabel, install.DefaultGroup)
	case err == nil:
		election.stage = keptStage
		if u.look(ctx, election) != nil {
			election.Outcome = uninstallKept
			election.Message = fmt.Sprintf("the Deployment %q of another install uses it and the Leases of reports", other)
		}
	default:
		election.Command = u.kubectl + " -n " + f.namespace + " delete leases -l " + reportLabel + "=" + install.DefaultGroup
		election.fail(ctx, fmt.Errorf("it is unknown whether another install uses it and the Leases of reports: %w", err))
		u.parts = append(u.parts, election)
	}
}

// surveyKept finds the objects that only --custom-resources removes, and the namespace.
func (u *uninstaller) surveyKept(ctx context.Context) {
	stage := keptStage
	if u.flags.customResources {
		stage = leftoversStage
	}
	for _, plural := range install.CustomResources() {
		crd := &uninstallPart{
			Kind: "CustomResourceDefinition", Name: plural + "." + v1alpha1.GroupVersion.Group, stage: stage,
			resource: uninstallResource("apiextensions.k8s.io", "customresourcedefinitions"),
		}
		if u.look(ctx, crd) == nil {
			continue
		}
		crd.Message = u.count(ctx, v1alpha1.GroupVersion.WithResource(plural))
		if stage == keptStage {
			crd.Outcome = uninstallKept
			crd.Message += " (--custom-resources removes both)"
		}
	}
	namespace := &uninstallPart{Kind: "Namespace", Name: u.flags.namespace, stage: keptStage, resource: uninstallResource("", "namespaces")}
	if u.look(ctx, namespace) != nil {
		namespace.Outcome, namespace.Message = uninstallKept, "it may contain other objects"
	}
}

// count returns how many objects are removed with a definition.
func (u *uninstaller) count(ctx context.Context, resource schema.GroupVersionResource) string {
	list, err := u.client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "with its objects, which cannot be counted: " + cli.OneLine(err.Error())
	}
	count := int64(len(list.Items))
	if more := list.GetRemainingItemCount(); more != nil {
		count += *more
	}
	if count == 1 {
		return "with its 1 object"
	}
	return fmt.Sprintf("with its %d objects", count)
}

// look reads the object of a part, and adds the part if there is one. Errors about parts
// that are kept are ignored.
func (u *uninstaller) look(ctx context.Context, p *uninstallPart) *unstructured.Unstructured {
	object, err := u.of(p).Get(ctx, p.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err != nil && p.stage == keptStage {
		return nil
	}
	p.Command = u.command(p)
	u.parts = append(u.parts, p)
	if err != nil {
		p.fail(ctx, err)
		return nil
	}
	p.Outcome, p.uid = uninstallFound, object.GetUID()
	return object
}

// of returns the client for the object of a part.
func (u *uninstaller) of(p *uninstallPart) dynamic.ResourceInterface {
	if p.Namespace == "" {
		return u.client.Resource(p.resource)
	}
	return u.client.Resource(p.resource).Namespace(p.Namespace)
}

// command returns the command that removes the object of a part.
func (u *uninstaller) command(p *uninstallPart) string {
	if p.Namespace == "" {
		return u.kubectl + " delete " + strings.ToLower(p.Kind) + " " + p.Name
	}
	return u.kubectl + " -n " + p.Namespace + " delete " + strings.ToLower(p.Kind) + " " + p.Name
}

// each reads all objects with a label in the namespace. The value is compared here: it
// may be a name that is too long for a label, and then there is none.
func (u *uninstaller) each(ctx context.Context, resource schema.GroupVersionResource, label, value string, do func(*unstructured.Unstructured)) error {
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return u.client.Resource(resource).Namespace(u.flags.namespace).List(ctx, o)
	})
	return list.EachListItem(ctx, metav1.ListOptions{LabelSelector: label}, func(item runtime.Object) error {
		if o, ok := item.(*unstructured.Unstructured); ok && o.GetLabels()[label] == value {
			do(o)
		}
		return nil
	})
}

// foreign sets the outcome to foreign.
func (p *uninstallPart) foreign(why string) {
	p.Outcome, p.Message = uninstallForeign, why
}

// judgeRegistration decides whether a webhook configuration belongs to the install. One
// that does not but may call its webhooks blocks the removal of the program.
func (p *uninstallPart) judgeRegistration(f *uninstallFlags, object *unstructured.Unstructured) {
	var config struct {
		Webhooks []struct {
			Name         string                                      `json:"name"`
			ClientConfig admissionregistrationv1.WebhookClientConfig `json:"clientConfig"`
		} `json:"webhooks"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &config); err != nil {
		p.Outcome, p.Message, p.blocks = uninstallFailed, cli.OneLine("it cannot be read: "+err.Error()), true
		return
	}
	if len(config.Webhooks) == 0 {
		p.foreign("it has no webhooks, so it calls nothing and its owner is unknown")
	}
	for i := range config.Webhooks {
		w := &config.Webhooks[i]
		named, service := strings.HasSuffix(w.Name, "."+v1alpha1.GroupVersion.Group), w.ClientConfig.Service
		here := service == nil || service.Namespace == f.namespace
		p.blocks = p.blocks || named || service != nil && here
		switch {
		case p.Outcome != uninstallFound:
		case !named:
			p.foreign(fmt.Sprintf("the name of its webhook %q does not end in %s", w.Name, v1alpha1.GroupVersion.Group))
		case !here:
			p.foreign(fmt.Sprintf("its webhook %q calls a Service in the namespace %q, not in %q, so it may belong to another install (hint: --namespace %s)", w.Name, service.Namespace, f.namespace, service.Namespace))
		}
	}
}

// toRemove returns how many parts are to be removed.
func (u *uninstaller) toRemove() int {
	count := 0
	for _, p := range u.parts {
		if p.Outcome == uninstallFound {
			count++
		}
	}
	return count
}

// remove removes what the survey has found, stage by stage.
func (u *uninstaller) remove(ctx context.Context) {
	for stage := registrationsStage; stage <= leftoversStage; stage++ {
		u.hold(stage)
		removed := false
		for _, p := range u.parts {
			if p.stage == stage && p.Outcome == uninstallFound {
				removed = u.delete(ctx, p) || removed
			}
		}
		for _, p := range u.parts {
			if p.stage == stage && p.Outcome == uninstallRemoved {
				u.await(ctx, p)
			}
		}
		if removed && stage == registrationsStage {
			sleep.Context(ctx, u.flags.lag)
			u.lookAgain(ctx)
		}
	}
	if !u.flags.registrationsOnly {
		u.lookAgain(ctx) // the program took a while to end
	}
}

// lookAgain finds registrations that were created again: API servers would reject requests
// that fail closed. One that cannot be read counts as removed.
func (u *uninstaller) lookAgain(ctx context.Context) {
	for _, p := range u.parts {
		if p.stage != registrationsStage || p.Outcome != uninstallRemoved {
			continue
		}
		if object, err := u.of(p).Get(ctx, p.Name, metav1.GetOptions{}); err == nil && object.GetUID() != p.uid {
			p.fail(ctx, errMadeAnew)
			p.blocks = true
		}
	}
}

// errMadeAnew is the error for an object that was created again.
var errMadeAnew = errors.New("it was created again, for example by a GitOps controller: stop that first")

// hold keeps the parts of stages before which another part must be removed.
func (u *uninstaller) hold(stages ...uninstallStage) {
	for _, stage := range stages {
		in := u.way(stage)
		if in == nil {
			continue
		}
		for _, p := range u.parts {
			if p.stage == stage && p.Outcome == uninstallFound {
				p.Outcome, p.Command = uninstallFailed, u.flags.again()
				p.Message = in.String() + " must be deleted first"
			}
		}
	}
}

// way returns the part that must be removed before a stage, nil if there is none.
func (u *uninstaller) way(stage uninstallStage) *uninstallPart {
	for _, p := range u.parts {
		left := p.Outcome == uninstallFailed || p.Outcome == uninstallForeign
		if left && p.stage < stage && (p.stage == programStage && p.Outcome == uninstallFailed || p.stage == registrationsStage && p.blocks) {
			return p
		}
	}
	return nil
}

// delete deletes the object that was found, and no other one of its name. It reports
// whether there is a deletion to wait for.
func (u *uninstaller) delete(ctx context.Context, p *uninstallPart) bool {
	// In the foreground, a Deployment is there until its pods have ended.
	propagation := metav1.DeletePropagationBackground
	if p.stage == programStage {
		propagation = metav1.DeletePropagationForeground
	}
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.uid}, PropagationPolicy: &propagation}
	if u.flags.dryRun.Server() {
		options.DryRun = []string{metav1.DryRunAll}
	}
	err := u.of(p).Delete(ctx, p.Name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		p.fail(ctx, err)
		return false
	}
	if u.flags.dryRun.Server() {
		return false // the part stays
	}
	p.Outcome = uninstallRemoved
	return err == nil
}

// await waits until the object of a part is gone. Temporary errors are retried.
func (u *uninstaller) await(ctx context.Context, p *uninstallPart) {
	const interval = 200 * time.Millisecond
	var finalizers []string
	for ctx.Err() == nil {
		object, err := u.of(p).Get(ctx, p.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return
		case apierrors.IsForbidden(err):
			p.fail(ctx, fmt.Errorf("its deletion was requested, and it is unknown whether it is gone: %w", err))
			return
		case err == nil && object.GetUID() != p.uid:
			p.fail(ctx, errMadeAnew)
			return
		case err == nil:
			finalizers = object.GetFinalizers()
		}
		sleep.Context(ctx, interval)
	}
	p.Outcome, p.Message = uninstallFailed, "its deletion was requested and has not ended: "+context.Cause(ctx).Error()
	if len(finalizers) > 0 {
		p.Message += fmt.Sprintf("; it waits for the finalizers %.200q", finalizers)
	}
}

// text returns the outcome of each part that is no error, for people.
func (u *uninstaller) text() string {
	var text strings.Builder
	line := func(verb string, p *uninstallPart, remark string) {
		fmt.Fprintf(&text, "%s %s", verb, cli.OneLine(p.String()))
		if remark != "" {
			text.WriteString(": " + remark)
		}
		text.WriteByte('\n')
	}
	for _, p := range u.parts {
		switch p.Outcome {
		case uninstallFound:
			line("would remove", p, p.Message)
		case uninstallRemoved:
			line("removed", p, p.Message)
		case uninstallKept:
			line("kept", p, p.Message+"; to remove it: "+p.Command)
		case uninstallForeign, uninstallFailed:
		}
	}
	if text.Len() == 0 && u.err() == nil {
		fmt.Fprintf(&text, "nothing to remove: no install %q in the namespace %q\n", u.flags.name, u.flags.namespace)
	}
	return text.String()
}

// err returns the errors about parts that are left, each with the command that removes it.
func (u *uninstaller) err() error {
	var problems []error
	for _, p := range u.parts {
		switch p.Outcome {
		case uninstallForeign:
			problems = append(problems, &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("%s stays: %s (hint: to delete it: %s)", cli.OneLine(p.String()), p.Message, p.Command)})
		case uninstallFailed:
			problems = append(problems, fmt.Errorf("%s may remain: %s (hint: %s)", cli.OneLine(p.String()), p.Message, p.Command))
		case uninstallFound, uninstallRemoved, uninstallKept:
		}
	}
	return cli.Worst(problems)
}
