#!/bin/sh
# webhook-fields-without-manager.sh: who manages what a mutating webhook sets.
#
#	sh findings/webhook-fields-without-manager.sh
#
# managedFields are computed before admission. A field that a webhook adds has no manager, with create and with server-side apply, so that it stays when the webhook is gone, another manager takes it without
# a conflict, and a release does not remove it. A field that the webhook changes is managed by the client, with the webhook's value. If the object is too large for etcd together with
# its managedFields, it is stored without any and without a warning: after that, nothing conflicts. The handlers are the API server's own, on a storage that keeps one object.
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
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
)

const (
	object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"object","namespace":"default"},"data":{"changed":"by the user","kept":"x"}}`
	path   = "/api/v1/namespaces/default/configmaps"
)

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	changed := false
	for _, c := range []struct {
		name     string
		apply    bool
		tooLarge int // objects that are larger than this are refused, as etcd does
		want     string
	}{
		{"create", false, 0, "tool Update [changed kept]"},
		{"server-side apply", true, 0, "tool Apply [changed kept]"},
		{"create, a little too large for etcd", false, 200, "nobody"},
	} {
		store := &storage{limit: c.tooLarge}
		scope := newScope()
		var handler http.Handler = handlers.CreateResource(store, scope, webhook{})
		r := httptest.NewRequest(http.MethodPost, path+"?fieldManager=tool", strings.NewReader(object))
		r.Header.Set("Content-Type", "application/json")
		info := &request.RequestInfo{IsResourceRequest: true, Verb: "create", APIVersion: "v1", Namespace: "default", Resource: "configmaps"}
		if c.apply {
			handler = handlers.PatchResource(store, scope, webhook{}, []string{string(types.ApplyYAMLPatchType)})
			r = httptest.NewRequest(http.MethodPatch, path+"/object?fieldManager=tool", strings.NewReader(object))
			r.Header.Set("Content-Type", string(types.ApplyYAMLPatchType))
			info.Verb, info.Name = "patch", "object"
		}
		ctx := request.WithUser(request.WithNamespace(request.WithRequestInfo(audit.WithAuditContext(r.Context()), info), "default"), &user.DefaultInfo{Name: "somebody"})
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(ctx))
		if store.stored == nil {
			fmt.Println(w.Body.String())
			os.Exit(1)
		}
		got := owners(store.stored)
		fmt.Printf("%s: status %d, data %v, managed by %s\n", c.name, w.Code, store.stored.Data, got)
		changed = changed || got != c.want || store.stored.Data["added"] == "" || w.Code != http.StatusCreated
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}

// owners returns who manages which keys of the data.
func owners(stored *core.ConfigMap) string {
	var all []string
	for _, m := range stored.ManagedFields {
		var fields struct {
			Data map[string]any `json:"f:data"`
		}
		check(json.Unmarshal(m.FieldsV1.Raw, &fields))
		var keys []string
		for _, key := range []string{"added", "changed", "kept"} {
			if _, there := fields.Data["f:"+key]; there {
				keys = append(keys, key)
			}
		}
		all = append(all, fmt.Sprintf("%s %s %v", m.Manager, m.Operation, keys))
	}
	if all == nil {
		return "nobody"
	}
	return strings.Join(all, ", ")
}

// webhook stands for a mutating admission webhook: it changes one key and adds another.
type webhook struct{}

func (webhook) Handles(admission.Operation) bool { return true }

func (webhook) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	data := a.GetObject().(*core.ConfigMap).Data
	data["changed"], data["added"] = "by the webhook", "y"
	return nil
}

// storage keeps the last object.
type storage struct {
	limit  int
	stored *core.ConfigMap
}

func (*storage) New() runtime.Object { return &core.ConfigMap{} }
func (*storage) Destroy()            {}

func (s *storage) Create(_ context.Context, o runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	content, err := json.Marshal(o)
	check(err)
	if s.limit > 0 && len(content) > s.limit {
		return nil, rpctypes.ErrRequestTooLarge
	}
	s.stored = o.(*core.ConfigMap)
	return o, nil
}

func (s *storage) Get(context.Context, string, *metav1.GetOptions) (runtime.Object, error) {
	return s.stored, nil
}

func (s *storage) Update(ctx context.Context, _ string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc, _ bool, _ *metav1.UpdateOptions) (runtime.Object, bool, error) {
	o, err := info.UpdatedObject(ctx, s.New())
	if err != nil {
		return nil, false, err
	}
	s.stored = o.(*core.ConfigMap)
	return o, true, nil
}

func newScope() *handlers.RequestScope {
	s := scheme.Scheme
	kind := core.SchemeGroupVersion.WithKind("ConfigMap")
	fields, err := managedfields.NewDefaultFieldManager(applyconfigurations.NewTypeConverter(s), s, s, s, kind, kind.GroupVersion(), "", nil)
	check(err)
	return &handlers.RequestScope{
		Namer:      handlers.ContextBasedNaming{Namer: runtime.Namer(meta.NewAccessor())},
		Serializer: scheme.Codecs, ParameterCodec: scheme.ParameterCodec,
		Creater: s, Convertor: s, UnsafeConvertor: s, Defaulter: s, Typer: s, FieldManager: fields,
		Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(),
		Resource:   core.SchemeGroupVersion.WithResource("configmaps"), Kind: kind,
		MetaGroupVersion: metav1.SchemeGroupVersion, HubGroupVersion: kind.GroupVersion(), MaxRequestBodyBytes: 1 << 20,
	}
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
	go.etcd.io/etcd/api/v3 v3.7.0
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/apiserver v0.37.2
	k8s.io/client-go v0.37.2
	k8s.io/klog/v2 v2.140.0
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: go.etcd.io/etcd/api/v3 v3.7.0, k8s.io/api v0.37.2, k8s.io/apimachinery v0.37.2, k8s.io/apiserver v0.37.2, k8s.io/client-go v0.37.2, k8s.io/klog/v2 v2.140.0"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
