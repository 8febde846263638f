package defaults

import (
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func replicationController(c *corev1.ReplicationController) {
	setPointer(&c.Spec.Replicas, 1)
	if c.Spec.Template == nil {
		return
	}
	podSpec(&c.Spec.Template.Spec)
	if labels := c.Spec.Template.Labels; labels != nil {
		if len(c.Spec.Selector) == 0 {
			c.Spec.Selector = labels
		}
		if len(c.Labels) == 0 {
			c.Labels = labels
		}
	}
}

func deployment(d *appsv1.Deployment) {
	podSpec(&d.Spec.Template.Spec)
	setPointer(&d.Spec.Replicas, 1)
	strategy := &d.Spec.Strategy
	set(&strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		setPointer(&strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		setPointer(&strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		setPointer(&strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	if strategy.RollingUpdate != nil { // of another type
		setPointer(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(0))
		setPointer(&strategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	setPointer(&d.Spec.RevisionHistoryLimit, 10)
	setPointer(&d.Spec.ProgressDeadlineSeconds, 600)
}

func daemonSet(d *appsv1.DaemonSet) {
	daemonSetDefaults(d)
	// A field of old versions, which the API server keeps as an annotation.
	generation, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil || generation < 1 {
		generation = 1
	}
	if d.Annotations == nil {
		d.Annotations = make(map[string]string, 1)
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(generation, 10)
}

func daemonSetDefaults(d *appsv1.DaemonSet) {
	podSpec(&d.Spec.Template.Spec)
	strategy := &d.Spec.UpdateStrategy
	set(&strategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if strategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		setPointer(&strategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		setPointer(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	if strategy.RollingUpdate != nil {
		setPointer(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(0))
		setPointer(&strategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	setPointer(&d.Spec.RevisionHistoryLimit, 10)
}

func statefulSet(s *appsv1.StatefulSet) {
	podSpec(&s.Spec.Template.Spec)
	set(&s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	strategy := &s.Spec.UpdateStrategy
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		setPointer(&strategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && strategy.RollingUpdate != nil {
		setPointer(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	if strategy.RollingUpdate != nil {
		setPointer(&strategy.RollingUpdate.Partition, 0)
	}
	setPointer(&s.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	set(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	set(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	setPointer(&s.Spec.Replicas, 1)
	setPointer(&s.Spec.RevisionHistoryLimit, 10)
	for i := range s.Spec.VolumeClaimTemplates {
		claim := &s.Spec.VolumeClaimTemplates[i]
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
		claimSpec(&claim.Spec)
		set(&claim.Status.Phase, corev1.ClaimPending)
		resources(claim.Status.Capacity)
		resources(claim.Status.AllocatedResources)
	}
}

func job(j *batchv1.Job) {
	jobSpec(&j.Spec)
	if j.Spec.Completions == nil && j.Spec.Parallelism == nil {
		setPointer(&j.Spec.Completions, 1)
	}
	setPointer(&j.Spec.Parallelism, 1)
	if j.Spec.BackoffLimitPerIndex != nil {
		setPointer(&j.Spec.BackoffLimit, math.MaxInt32)
	}
	setPointer(&j.Spec.BackoffLimit, 6)
	if len(j.Labels) == 0 && j.Spec.Template.Labels != nil {
		j.Labels = j.Spec.Template.Labels
	}
	setPointer(&j.Spec.CompletionMode, batchv1.NonIndexedCompletion)
	setPointer(&j.Spec.Suspend, false)
	replacement := batchv1.TerminatingOrFailed
	if j.Spec.PodFailurePolicy != nil {
		replacement = batchv1.Failed
	}
	setPointer(&j.Spec.PodReplacementPolicy, replacement)
	setPointer(&j.Spec.ManualSelector, false)
}

// cronJob does not fill in the jobs that it will create.
func cronJob(c *batchv1.CronJob) {
	jobSpec(&c.Spec.JobTemplate.Spec)
	set(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	setPointer(&c.Spec.Suspend, false)
	setPointer(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	setPointer(&c.Spec.FailedJobsHistoryLimit, 1)
}

// jobSpec fills in what a job and the template of one have in common.
func jobSpec(s *batchv1.JobSpec) {
	podSpec(&s.Template.Spec)
	if s.PodFailurePolicy != nil {
		for rule := range slices.Values(s.PodFailurePolicy.Rules) {
			for i := range rule.OnPodConditions {
				set(&rule.OnPodConditions[i].Status, corev1.ConditionTrue)
			}
		}
	}
}
