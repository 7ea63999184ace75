package webhook

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "setpoint/peers/kubebuilder/api/v1"
	v2 "setpoint/peers/kubebuilder/api/v2"
)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: name + "-"}
}

var _ = Describe("The webhooks of ferries", func() {
	It("fill in what is left out, and warn", func() {
		ferry := &v1.Ferry{ObjectMeta: named("default"), Spec: v1.FerrySpec{Line: "north"}}
		Expect(k8sClient.Create(ctx, ferry)).To(Succeed())
		Expect(ferry.Spec.Passengers).To(BeEquivalentTo(Seats))
		Expect(ferry.Spec.Captain).To(Equal("nobody"))
		Eventually(warnings.seen).Should(Receive(Equal("a ferry without a captain stays in the harbour")))
	})

	It("refuse what does not fit", func() {
		ferry := &v1.Ferry{ObjectMeta: named("large"), Spec: v1.FerrySpec{Line: "north", Passengers: 401}}
		err := k8sClient.Create(ctx, ferry)
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("more than 400 do not fit")))
		status := err.(apierrors.APIStatus).Status()
		Expect(status.Details.Causes).To(ContainElement(HaveField("Field", "spec.passengers")))
	})

	It("keep a ferry on its line", func() {
		ferry := &v1.Ferry{ObjectMeta: named("line"), Spec: v1.FerrySpec{Line: "north"}}
		Expect(k8sClient.Create(ctx, ferry)).To(Succeed())
		ferry.Spec.Line = "south"
		err := k8sClient.Update(ctx, ferry)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("it stays on its line north")))
	})

	It("are asked before a delete", func() {
		ferry := &v1.Ferry{ObjectMeta: named("kept"), Spec: v1.FerrySpec{Line: "north"}}
		ferry.Annotations = map[string]string{"harbour.example.com/keep": "true"}
		Expect(k8sClient.Create(ctx, ferry)).To(Succeed())
		err := k8sClient.Delete(ctx, ferry)
		Expect(err).To(MatchError(ContainSubstring("is kept")))
		Expect(k8sClient.Get(ctx, client.ObjectKeyFromObject(ferry), ferry)).To(Succeed())
		ferry.Annotations = nil
		Expect(k8sClient.Update(ctx, ferry)).To(Succeed())
		Expect(k8sClient.Delete(ctx, ferry)).To(Succeed())
	})

	It("convert between versions, there and back", func() {
		old := &v1.Ferry{ObjectMeta: named("convert"), Spec: v1.FerrySpec{Line: "west", Passengers: 7, Captain: "eva"}}
		Expect(k8sClient.Create(ctx, old)).To(Succeed())
		var new v2.Ferry
		Expect(k8sClient.Get(ctx, client.ObjectKeyFromObject(old), &new)).To(Succeed())
		Expect(new.Spec).To(Equal(v2.FerrySpec{Line: "west", Capacity: v2.Capacity{Passengers: 7}, Crew: []string{"eva"}}))
		new.Spec.Crew = []string{"ole"}
		Expect(k8sClient.Update(ctx, &new)).To(Succeed())
		Expect(k8sClient.Get(ctx, client.ObjectKeyFromObject(old), old)).To(Succeed())
		Expect(old.Spec.Captain).To(Equal("ole"))
		var all v2.FerryList
		Expect(k8sClient.List(ctx, &all, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
		Expect(all.Items).To(ContainElement(HaveField("Name", old.Name)))
	})

	It("see a new version of an object as the one that they know", func() {
		ferry := &v2.Ferry{ObjectMeta: named("v2"), Spec: v2.FerrySpec{Line: "east", Capacity: v2.Capacity{Passengers: 500}}}
		err := k8sClient.Create(ctx, ferry)
		Expect(err).To(MatchError(ContainSubstring("more than 400 do not fit")))
		ferry.Spec.Capacity.Passengers = 0
		Expect(k8sClient.Create(ctx, ferry)).To(Succeed())
		Expect(ferry.Spec.Capacity.Passengers).To(BeEquivalentTo(Seats))
		Expect(ferry.Spec.Crew).To(Equal([]string{"nobody"}))
	})
})
