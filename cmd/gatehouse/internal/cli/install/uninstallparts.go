package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/paging"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
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
)

// uninstaller removes an install. It is used once, by one goroutine.
type uninstaller struct {
	flags   *uninstallFlags
	client  dynamic.Interface
	kubectl string
	// parts are in the order of their removal.
	parts []*uninstallPart
	// unreached is why the API server could not be reached when the parts were read, nil if it could.
	unreached error
}

const (
	// ourLabel is on the Deployment of every install, with ourValue.
	ourLabel = "app.kubernetes.io/name"
	ourValue = "gatehouse"
	// certificatesLabel on a Secret and on Leases has the name of the Secret, and
	// reportLabel on Leases is DefaultGroup.
	certificatesLabel = "gatehouse.dev/certificates"
	reportLabel       = "gatehouse.dev/report"
)

// part returns a part of a resource in a namespace, or of a cluster-scoped one without. All resources are v1.
func (u *uninstaller) part(stage uninstallStage, group, kind, namespace, name string) *uninstallPart {
	p := &uninstallPart{
		Kind: kind, Namespace: namespace, Name: name, stage: stage,
		resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: strings.ToLower(kind) + "s"},
	}
	p.Command = u.kubectl
	if namespace != "" {
		p.Command += " -n " + shell.Quote(namespace)
	}
	p.Command += " delete " + strings.ToLower(kind) + " " + shell.Quote(name)
	return p
}

// survey finds the parts. One that cannot be read has failed.
func (u *uninstaller) survey(ctx context.Context) {
	f := u.flags
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		p := u.part(registrationsStage, admissionregistrationv1.GroupName, kind, "", f.name)
		if object := u.find(ctx, p); object != nil {
			p.checkRegistration(f.namespace, object)
		}
	}
	if f.registrationsOnly {
		return
	}
	deployment := u.part(programStage, "apps", "Deployment", f.namespace, f.name)
	if object := u.find(ctx, deployment); object != nil && object.GetLabels()[ourLabel] != ourValue {
		deployment.foreign(`it lacks the label "` + ourLabel + "=" + ourValue + `"`)
	}
	secret := u.part(leftoversStage, "", "Secret", f.namespace, f.name+"-ca")
	if object := u.find(ctx, secret); object != nil && object.GetLabels()[certificatesLabel] == "" {
		secret.foreign(`it lacks the label "` + certificatesLabel + `", so Gatehouse did not create it`)
	}
	u.findLeases(ctx, certificatesLabel, secret.Name)
	if f.name == install.DefaultRegistration {
		// All installs of a namespace share the Leases of election and reports. An install that is left creates them again.
		u.find(ctx, u.part(leftoversStage, coordinationv1.GroupName, "Lease", f.namespace, install.DefaultGroup+"-status"))
		u.findLeases(ctx, reportLabel, install.DefaultGroup)
	}
	if !f.customResources {
		return
	}
	for _, plural := range install.CustomResources() {
		crd := u.part(leftoversStage, apiextensionsv1.GroupName, "CustomResourceDefinition", "", plural+"."+v1alpha1.GroupVersion.Group)
		if u.find(ctx, crd) != nil {
			crd.Message = "with all of its objects"
		}
	}
}

// find reads the object of a part, and adds the part if there is one.
func (u *uninstaller) find(ctx context.Context, p *uninstallPart) *unstructured.Unstructured {
	object, err := u.of(p).Get(ctx, p.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	u.parts = append(u.parts, p)
	if err != nil {
		u.unreached = cmp.Or(u.unreached, apierr.Unreached(err))
		p.fail(ctx, err)
		return nil
	}
	p.Outcome, p.uid = uninstallFound, object.GetUID()
	return object
}

// findLeases finds the Leases of the namespace with a label. The value is compared here: it
// may be a name that is too long for a label, and then there is none.
func (u *uninstaller) findLeases(ctx context.Context, label, value string) {
	all := u.part(leftoversStage, coordinationv1.GroupName, "Lease", u.flags.namespace, "")
	err := paging.Objects(ctx, u.of(all).List, metav1.ListOptions{LabelSelector: label}, func(o *unstructured.Unstructured) error {
		if o.GetLabels()[label] == value {
			p := u.part(leftoversStage, coordinationv1.GroupName, "Lease", u.flags.namespace, o.GetName())
			p.Outcome, p.uid = uninstallFound, o.GetUID()
			u.parts = append(u.parts, p)
		}
		return nil
	})
	if err != nil {
		all.Command = u.kubectl + " -n " + shell.Quote(u.flags.namespace) + " delete leases -l " + label + "=" + value
		all.fail(ctx, err)
		u.parts = append(u.parts, all)
	}
}

// of returns the client for the object of a part.
func (u *uninstaller) of(p *uninstallPart) dynamic.ResourceInterface {
	if p.Namespace == "" {
		return u.client.Resource(p.resource)
	}
	return u.client.Resource(p.resource).Namespace(p.Namespace)
}

// foreign sets the outcome to foreign.
func (p *uninstallPart) foreign(why string) { p.Outcome, p.Message = uninstallForeign, why }

// checkRegistration reports a webhook configuration that does not belong to the install in the namespace.
func (p *uninstallPart) checkRegistration(namespace string, object *unstructured.Unstructured) {
	var config struct {
		Webhooks []struct {
			Name         string                                      `json:"name"`
			ClientConfig admissionregistrationv1.WebhookClientConfig `json:"clientConfig"`
		} `json:"webhooks"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &config); err != nil {
		p.Outcome, p.Message = uninstallFailed, cli.OneLine("it cannot be read: "+err.Error())
		return
	}
	if len(config.Webhooks) == 0 {
		p.foreign("it has no webhooks, so it calls nothing and its owner is unknown")
	}
	for i := range config.Webhooks {
		w := &config.Webhooks[i]
		switch service := w.ClientConfig.Service; {
		case !strings.HasSuffix(w.Name, "."+v1alpha1.GroupVersion.Group):
			p.foreign(fmt.Sprintf("the name of its webhook %q does not end in %s", w.Name, v1alpha1.GroupVersion.Group))
			return
		case service != nil && service.Namespace != namespace:
			p.foreign(fmt.Sprintf("its webhook %q calls a Service in the namespace %q, not in %q, so it may belong to another install (hint: --namespace %s)", w.Name, service.Namespace, namespace, shell.Quote(service.Namespace)))
			return
		}
	}
}

// hasFound reports whether any part is to be removed.
func (u *uninstaller) hasFound() bool {
	return slices.ContainsFunc(u.parts, func(p *uninstallPart) bool { return p.Outcome == uninstallFound })
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
		}
		u.findAgain(ctx) // the program takes a while to end
	}
}

// findAgain finds registrations that were created again: API servers would reject requests
// that fail closed. One that cannot be read counts as removed.
func (u *uninstaller) findAgain(ctx context.Context) {
	for _, p := range u.parts {
		if p.stage != registrationsStage || p.Outcome != uninstallRemoved {
			continue
		}
		if object, err := u.of(p).Get(ctx, p.Name, metav1.GetOptions{}); err == nil && object.GetUID() != p.uid {
			p.fail(ctx, errMadeAnew)
		}
	}
}

// errMadeAnew is the error for an object that was created again.
var errMadeAnew = errors.New("it was created again, for example by a GitOps controller: stop that first")

// hold keeps the parts of stages before which another part must be removed: all registrations of the name, because API
// servers reject requests when nobody answers for them, and the program, which would create the leftovers again.
func (u *uninstaller) hold(stages ...uninstallStage) {
	for _, p := range u.parts {
		if !slices.Contains(stages, p.stage) || p.Outcome != uninstallFound {
			continue
		}
		for _, first := range u.parts {
			if first.stage < p.stage && (first.Outcome == uninstallFailed || first.Outcome == uninstallForeign && first.stage == registrationsStage) {
				p.Outcome, p.Command = uninstallFailed, u.flags.again()
				p.Message = first.String() + " must be deleted first"
				break
			}
		}
	}
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
	line := func(verb string, p *uninstallPart) {
		fmt.Fprintf(&text, "%s %s", verb, cli.OneLine(p.String()))
		if p.Message != "" {
			text.WriteString(": " + p.Message)
		}
		text.WriteByte('\n')
	}
	for _, p := range u.parts {
		switch p.Outcome {
		case uninstallFound:
			line("would remove", p)
		case uninstallRemoved:
			line("removed", p)
		case uninstallForeign, uninstallFailed:
		}
	}
	switch {
	case text.Len() == 0 && u.err() == nil:
		fmt.Fprintf(&text, "nothing to remove: no install %q in the namespace %q\n", u.flags.name, u.flags.namespace)
	case text.Len() > 0 && !u.flags.registrationsOnly && !u.flags.customResources:
		text.WriteString("kept the namespace, and the CustomResourceDefinitions with all of their objects (hint: --custom-resources removes these)\n")
	}
	return text.String()
}

// err returns the errors about parts that are left, each with the command that removes it.
func (u *uninstaller) err() error {
	if u.unreached != nil && !slices.ContainsFunc(u.parts, func(p *uninstallPart) bool { return p.Outcome != uninstallFailed }) {
		return fmt.Errorf("nothing was removed: %w", u.unreached)
	}
	var problems []error
	for _, p := range u.parts {
		switch p.Outcome {
		case uninstallForeign:
			problems = append(problems, &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("%s stays: %s (hint: to delete it: %s)", cli.OneLine(p.String()), p.Message, p.Command)})
		case uninstallFailed:
			problems = append(problems, fmt.Errorf("%s may remain: %s (hint: %s)", cli.OneLine(p.String()), p.Message, p.Command))
		case uninstallFound, uninstallRemoved:
		}
	}
	return cli.Worst(problems)
}
