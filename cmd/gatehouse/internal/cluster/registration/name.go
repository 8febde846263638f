// Package registration keeps webhook configurations and Gatehouse in step. A Reader keeps named configurations in memory and
// verifies that they trust the serving certificate, in every replica. A Writer, in the elected one, is the only program that
// writes into them: the CA, rules and selectors, by server-side apply of these fields alone.
package registration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// Subject is what the Events of this package are about.
const Subject = "registration"

// Kind is a kind of webhook configuration.
type Kind string

// The kinds.
const (
	Mutating   Kind = "MutatingWebhookConfiguration"
	Validating Kind = "ValidatingWebhookConfiguration"
)

// kinds returns all kinds, in the order in which they are shown.
func kinds() []Kind { return []Kind{Mutating, Validating} }

// resource returns the plural as in a Role.
func (k Kind) resource() string { return strings.ToLower(string(k)) + "s" }

// prefix returns what begins a Name of a kind: "mutating" or "validating".
func (k Kind) prefix() string {
	return strings.ToLower(strings.TrimSuffix(string(k), "WebhookConfiguration"))
}

// Name names a webhook configuration.
type Name struct {
	// Kind is "" for those of the two that exist, at least one.
	Kind Kind
	// Name is the name of the object.
	Name string
}

// ParseName reads "NAME" for the configurations of that name, whichever
// exist, and "mutating/NAME" or "validating/NAME" for the one of that kind.
func ParseName(text string) (Name, error) {
	n := Name{Name: text}
	if before, rest, hasKind := strings.Cut(text, "/"); hasKind {
		n.Name = rest
		i := slices.IndexFunc(kinds(), func(k Kind) bool { return k.prefix() == before })
		if i < 0 {
			return Name{}, fmt.Errorf("registration %s: the kind %s is not known, allowed are mutating and validating (hint: mutating/NAME, or NAME alone for whichever exist)", quote(text), quote(before))
		}
		n.Kind = kinds()[i]
	}
	if wrong := validation.NameIsDNSSubdomain(n.Name, false); len(wrong) > 0 {
		return Name{}, fmt.Errorf("registration %s: the name %s is not that of a webhook configuration: %s (hint: gatehouse)", quote(text), quote(n.Name), wrong[0])
	}
	return n, nil
}

// quote returns a value of another client for a message.
func quote(text string) string { return strconv.Quote(truncate.Bytes(text, 80)) }

// target is an object that may or may not exist.
type target struct {
	kind Kind
	name string
}

func (t target) String() string { return string(t.kind) + " " + t.name }

// reference returns the object for an Event.
func (t target) reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: string(t.kind), Name: t.name}
}

// group is targets of which at least one must exist. It holds their indexes.
type group []int

// targetsOf returns what names name, each once, and what must exist of it.
func targetsOf(names []Name) (targets []target, groups []group) {
	for _, n := range names {
		var g group
		for _, k := range kinds() {
			if n.Kind != "" && n.Kind != k {
				continue
			}
			t := target{kind: k, name: n.Name}
			i := slices.Index(targets, t)
			if i < 0 {
				i = len(targets)
				targets = append(targets, t)
			}
			g = append(g, i)
		}
		if !slices.ContainsFunc(groups, func(o group) bool { return slices.Equal(o, g) }) {
			groups = append(groups, g)
		}
	}
	return targets, groups
}

// get reads a configuration from the API server, nil if it does not exist.
func (t target) get(ctx context.Context, client certs.Client) (*object, error) {
	var found runtime.Object
	var err error
	if t.kind == Mutating {
		found, err = client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, t.name, metav1.GetOptions{})
	} else {
		found, err = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, t.name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return newObject(found), nil
}
