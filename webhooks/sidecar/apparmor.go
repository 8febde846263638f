package sidecar

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

// unarmored is what is added to one of the pod's own containers without an
// AppArmor profile other than the one that the pod's annotation gives it: the
// API server refuses a pod that says both.
func (pl *plan) unarmored(container string, template rawjson.Value) rawjson.Value {
	security := template.Get("securityContext")
	profile := security.Get("appArmorProfile")
	if profile.Kind() != rawjson.Object {
		return template
	}
	annotation := pl.pod.Annotations.Get(corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + container)
	if annotation == nil || annotation.Is(appArmorWord(profile)) {
		return template
	}
	pl.verdict.step("app container", "kept", "the AppArmor profile of container "+podtext.Quote(container)+", which an annotation of the pod gives it")
	rest := merge.RemoveMembers(security, "appArmorProfile")
	template = merge.RemoveMembers(template, "securityContext")
	if rest.Len() == 0 {
		return template
	}
	e := merge.Editor{Text: template}
	if err := e.Add("", template, "securityContext", json.RawMessage(rest)); err != nil {
		return template // It cannot happen: the value is the text.
	}
	return e.Result()
}

// appArmorWord is what an annotation says for an AppArmor profile.
func appArmorWord(profile rawjson.Value) string {
	switch corev1.AppArmorProfileType(profile.Get("type").Text()) {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case corev1.AppArmorProfileTypeUnconfined:
		return corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	case corev1.AppArmorProfileTypeLocalhost:
		return corev1.DeprecatedAppArmorBetaProfileNamePrefix + profile.Get("localhostProfile").Text()
	default:
		return ""
	}
}
