package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"
)

// usualHandler returns a webhook on controller-runtime as its documentation shows it:
// decode the pod, change or check it, marshal it and let PatchResponseFromRaw
// find the difference. It adds what the benchmark's first SidecarProfile adds and
// checks what its one policy checks. It neither logs nor counts, which a real one
// would.
func usualHandler() http.Handler {
	log.SetLogger(logr.Discard())
	decoder := admission.NewDecoder(clientgoscheme.Scheme)
	sidecar := agent()
	onPods := func(answer func(admission.Request, *corev1.Pod) admission.Response) http.Handler {
		return &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, req admission.Request) admission.Response {
			pod := &corev1.Pod{}
			if err := decoder.Decode(req, pod); err != nil {
				return admission.Errored(http.StatusBadRequest, err)
			}
			return answer(req, pod)
		})}
	}
	token, _ := benchToken()
	mux := http.NewServeMux()
	mux.Handle(pathMutate, onPods(func(req admission.Request, pod *corev1.Pod) admission.Response {
		pod.Spec.InitContainers = slices.Concat(sidecar.InitContainers, pod.Spec.InitContainers)
		pod.Spec.Volumes = append(pod.Spec.Volumes, sidecar.Volumes...)
		raw, err := json.Marshal(pod)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.PatchResponseFromRaw(req.Object.Raw, raw)
	}))
	mux.Handle(pathValidate, onPods(func(_ admission.Request, pod *corev1.Pod) admission.Response {
		if problems := podProblems(pod); len(problems) > 0 {
			return admission.Denied(strings.Join(problems, "; "))
		}
		return admission.Allowed("")
	}))
	mux.Handle(pathAuthenticate, &authentication.Webhook{
		Handler: authentication.HandlerFunc(func(_ context.Context, req authentication.Request) authentication.Response {
			if req.Spec.Token != token {
				return authentication.Unauthenticated("", authenticationv1.UserInfo{})
			}
			return authentication.Authenticated("", authenticationv1.UserInfo{Username: tokenUser, Groups: []string{tokenGroup}})
		}),
	})
	return mux
}

// podProblems returns the violations of middleRules.
func podProblems(pod *corev1.Pod) []string {
	var problems []string
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if strings.HasSuffix(container.Image, ":latest") || !strings.Contains(container.Image, ":") {
			problems = append(problems, fmt.Sprintf("container %q has image %q without a fixed tag", container.Name, container.Image))
		}
		if _, limited := container.Resources.Limits[corev1.ResourceMemory]; !limited {
			problems = append(problems, fmt.Sprintf("container %q has no memory limit", container.Name))
		}
	}
	if pod.Labels[nameLabel] == "" {
		problems = append(problems, "label "+nameLabel+" is missing")
	}
	return problems
}
