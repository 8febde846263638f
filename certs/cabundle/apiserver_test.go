package cabundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/certs/webhookconfig"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

// apiServer adds to the fake API server the managed fields of caBundles. test/cabundle
// sends the same requests to a real one.
type apiServer struct{ *certstest.APIServer }

// configuration is either kind: they differ in nothing that is used here.
type configuration = admissionregistrationv1.ValidatingWebhookConfiguration

var errAway = errors.New("connection refused")

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{certstest.NewAPIServer(t)}
	s.Apply = applyBundles
	return s
}

// pathOf returns the path of an object "validating/NAME" or "mutating/NAME".
func pathOf(name string) string {
	prefix, object, _ := strings.Cut(name, "/")
	return "/apis/admissionregistration.k8s.io/v1/" + prefix + "webhookconfigurations/" + object
}

// convert converts a value by way of JSON.
func convert[T any](from any) T {
	var to T
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, &to)
	}
	if err != nil {
		panic(err)
	}
	return to
}

// put writes an object as a client does that replaces it whole.
func (s *apiServer) put(name string, change func(*configuration)) {
	s.Edit(pathOf(name), func(object map[string]any) map[string]any {
		o := convert[configuration](object)
		o.UID = "uid"
		before := o.DeepCopy()
		change(&o)
		if reflect.DeepEqual(before.ManagedFields, o.ManagedFields) {
			// Whoever changes a caBundle takes it over.
			manage(&o, slices.DeleteFunc(applied(&o), func(name string) bool { return !bytes.Equal(bundleIn(before, name), bundleIn(&o, name)) }))
		}
		return convert[map[string]any](o)
	})
}

func (s *apiServer) remove(name string) { s.Remove(pathOf(name)) }

// bundles returns the caBundles of an object's webhooks.
func (s *apiServer) bundles(name string) []string {
	var list []string
	for _, w := range convert[configuration](s.Get(pathOf(name))).Webhooks {
		list = append(list, string(w.ClientConfig.CABundle))
	}
	return list
}

// bundleIn returns the caBundle of a webhook, nil if it is not there.
func bundleIn(o *configuration, webhook string) []byte {
	i := slices.IndexFunc(o.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return w.Name == webhook })
	if i < 0 {
		return nil
	}
	return o.Webhooks[i].ClientConfig.CABundle
}

// applied returns the webhooks whose caBundle is managed by a Publisher.
func applied(o *configuration) []string {
	var names []string
	for i := range o.Webhooks {
		if name := o.Webhooks[i].Name; newObject(webhookconfig.Validating, o).isApplied(name) {
			names = append(names, name)
		}
	}
	return names
}

// manage makes a Publisher the manager of these caBundles and no others.
func manage(o *configuration, webhooks []string) {
	o.ManagedFields = slices.DeleteFunc(slices.Clone(o.ManagedFields), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == FieldManager })
	if len(webhooks) == 0 {
		return
	}
	var fields []string
	for _, name := range webhooks {
		fields = append(fields, fmt.Sprintf(`"k:{\"name\":\"%s\"}":{".":{},"f:clientConfig":{"f:caBundle":{}},"f:name":{}}`, name))
	}
	o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply, Time: new(metav1.Now()),
		FieldsV1: metav1.NewFieldsV1(`{"f:webhooks":{` + strings.Join(fields, ",") + `}}`),
	})
}

// applyBundles is server-side apply by a Publisher, which removes what it applied before
// and leaves out now.
func applyBundles(object, patch map[string]any) (map[string]any, *http.Response) {
	o, p := convert[configuration](object), convert[configuration](patch)
	switch {
	case object == nil:
		return nil, certstest.Refuse(http.StatusUnprocessableEntity, "webhooks[0].sideEffects: Required value")
	case o.ResourceVersion != p.ResourceVersion:
		return nil, certstest.Refuse(http.StatusConflict, "conflict")
	}
	before := applied(&o)
	var names []string
	for _, w := range p.Webhooks {
		names = append(names, w.Name)
	}
	for i := range o.Webhooks {
		w := &o.Webhooks[i]
		bundle := bundleIn(&p, w.Name)
		switch {
		case slices.Contains(names, w.Name):
			if !bytes.Equal(w.ClientConfig.CABundle, bundle) {
				// Whoever managed it does not any more. That is all that others manage here.
				o.ManagedFields = slices.DeleteFunc(o.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
					return f.Manager != FieldManager && len(webhookconfig.Managers([]metav1.ManagedFieldsEntry{f}, w.Name, "clientConfig", "caBundle")) > 0
				})
			}
			w.ClientConfig.CABundle = bundle
		case slices.Contains(before, w.Name):
			w.ClientConfig.CABundle = nil
		}
	}
	manage(&o, names)
	return convert[map[string]any](o), nil
}

// webhooks sets the webhooks of a configuration: names, and the hosts that they
// call, which are services if they end in .svc.
func webhooks(bundle string, hosts map[string]string) func(*configuration) {
	return func(o *configuration) {
		o.Webhooks = nil
		for _, name := range slices.Sorted(maps.Keys(hosts)) {
			w := admissionregistrationv1.ValidatingWebhook{Name: name}
			if service, ok := strings.CutSuffix(hosts[name], ".svc"); ok {
				service, namespace, _ := strings.Cut(service, ".")
				w.ClientConfig.Service = &admissionregistrationv1.ServiceReference{Name: service, Namespace: namespace}
			} else {
				w.ClientConfig.URL = new("https://" + hosts[name] + "/validate")
			}
			w.ClientConfig.CABundle = []byte(bundle)
			o.Webhooks = append(o.Webhooks, w)
		}
	}
}
