package controller

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "setpoint/peers/kubebuilder/api/v1"
)

var _ = Describe("A ferry", func() {
	var ferry *v1.Ferry
	var berth types.NamespacedName

	BeforeEach(func() {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "harbour-"}}
		Expect(k8sClient.Create(ctx, namespace)).To(Succeed())
		ferry = &v1.Ferry{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "anna"},
			Spec:       v1.FerrySpec{Line: "north", Passengers: 12},
		}
		Expect(k8sClient.Create(ctx, ferry)).To(Succeed())
		berth = types.NamespacedName{Namespace: namespace.Name, Name: "anna-berth"}
	})

	moored := func(g Gomega) {
		g.Expect(k8sClient.Get(ctx, client.ObjectKeyFromObject(ferry), ferry)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(ferry.Status.Conditions, "Moored")).To(BeTrue())
		g.Expect(ferry.Status.ObservedGeneration).To(Equal(ferry.Generation))
	}

	It("gets a berth, a status and an event", func() {
		Eventually(moored).Should(Succeed())
		Expect(ferry.Status.Berth).To(Equal("anna-berth"))
		Expect(ferry.Finalizers).To(ConsistOf(v1.Finalizer))
		var found corev1.ConfigMap
		Expect(k8sClient.Get(ctx, berth, &found)).To(Succeed())
		Expect(found.Data).To(Equal(map[string]string{"line": "north", "passengers": "12"}))
		Expect(metav1.IsControlledBy(&found, ferry)).To(BeTrue())
		Eventually(func(g Gomega) {
			var seen eventsv1.EventList
			g.Expect(k8sClient.List(ctx, &seen, client.InNamespace(ferry.Namespace))).To(Succeed())
			g.Expect(seen.Items).To(ContainElement(HaveField("Reason", "Moored")))
		}).Should(Succeed())
	})

	It("follows its spec", func() {
		Eventually(moored).Should(Succeed())
		Eventually(func() error {
			if err := k8sClient.Get(ctx, client.ObjectKeyFromObject(ferry), ferry); err != nil {
				return err
			}
			ferry.Spec.Passengers = 30
			return k8sClient.Update(ctx, ferry)
		}).Should(Succeed())
		Expect(ferry.Generation).To(BeEquivalentTo(2))
		Eventually(moored).Should(Succeed())
		var found corev1.ConfigMap
		Expect(k8sClient.Get(ctx, berth, &found)).To(Succeed())
		Expect(found.Data["passengers"]).To(Equal("30"))
	})

	It("gets a new berth for one that is taken away", func() {
		Eventually(moored).Should(Succeed())
		taken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: berth.Namespace, Name: berth.Name}}
		Expect(k8sClient.Get(ctx, berth, taken)).To(Succeed())
		Expect(k8sClient.Delete(ctx, taken)).To(Succeed())
		Eventually(func(g Gomega) {
			var found corev1.ConfigMap
			g.Expect(k8sClient.Get(ctx, berth, &found)).To(Succeed())
			g.Expect(found.UID).NotTo(Equal(taken.UID))
		}).Should(Succeed())
	})

	It("gives its berth back", func() {
		Eventually(moored).Should(Succeed())
		Expect(k8sClient.Delete(ctx, ferry)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(apierrors.IsNotFound(k8sClient.Get(ctx, client.ObjectKeyFromObject(ferry), ferry))).To(BeTrue())
			g.Expect(apierrors.IsNotFound(k8sClient.Get(ctx, berth, &corev1.ConfigMap{}))).To(BeTrue())
		}).Should(Succeed())
	})

	It("is checked against its schema and its rules", func() {
		other := &v1.Ferry{ObjectMeta: metav1.ObjectMeta{Namespace: ferry.Namespace, Name: "berta"}}
		other.Spec = v1.FerrySpec{Line: "", Passengers: -1}
		err := k8sClient.Create(ctx, other)
		Expect(apierrors.IsInvalid(err)).To(BeTrue())
		Expect(err.Error()).To(And(ContainSubstring("spec.line"), ContainSubstring("spec.passengers")))
		other.Spec = v1.FerrySpec{Line: "ghost"}
		Expect(k8sClient.Create(ctx, other)).To(MatchError(ContainSubstring("there is no ghost line")))
	})

	It("has a scale", func() {
		var scale autoscalingv1.Scale
		Expect(k8sClient.SubResource("scale").Get(ctx, ferry, &scale)).To(Succeed())
		Expect(scale.Spec.Replicas).To(BeEquivalentTo(12))
	})
})
