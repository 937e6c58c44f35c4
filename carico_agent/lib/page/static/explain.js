// One paragraph that says what the number means and why it is not larger.
import { amount, known, number, percent, resourceName } from "./format.js";

export function explain(status) {
  if (!known(status.pod_capacity)) return "The agent has no number yet: something it needs is unknown.";
  return [meaning(status), mixChanged(status), why(status), mode(status), unit(status), reserved(status)].filter(Boolean).join(" ");
}

function meaning(status) {
  const whole = Math.max(0, Math.floor(status.pod_capacity + 1e-6));
  const next = likely(status);
  const pods = whole === 1 ? "1 more whole Pod" : `${whole} more whole Pods`;
  const like = next ? ` of the mix that usually arrives here (mostly ${next})` : "";
  if (whole === 0) return `No further Pod${like} fits now.`;
  return `${pods}${like} ${whole === 1 ? "fits" : "fit"} now.`;
}

// The number may jump at the same load, because it counts in what arrives.
function mixChanged(status) {
  return status.mix_changed ? `The mix changed within the last minutes: ${status.mix_changed}.` : "";
}

function likely(status) {
  const workloads = (status.workloads ?? []).filter((workload) => !workload.per_node && workload.arrivals > 0);
  return workloads.sort((a, b) => b.arrivals - a.arrivals)[0]?.workload ?? "";
}

function why(status) {
  const resource = status.limiting;
  if (!resource) return "No resource is near its limit.";
  const name = resourceName(resource);
  const cost = status.cost_vector?.[resource];
  const verb = status.mode === "learning" ? "is assumed to take, on average," : "is expected to take";
  const takes = known(cost) ? `; the next Pod ${verb} ${percent(cost)} (${amount(resource, cost, status.sizes)})` : "";
  const room = status.room?.[resource];
  if (known(room)) return `The ${name} runs out first: ${percent(Math.max(0, room))} of it is left${takes}.${mostly(status, resource)}`;
  return `The ${name} runs out first: ${percent(status.usage?.[resource])} of it is used${takes}.`;
}

// What has the most of what runs out: a workload, or the host beside all Pods.
function mostly(status, resource) {
  const share = (workload) => workload.pods * (known(workload.cost?.[resource]) ? workload.cost[resource] : 0);
  const first = [...(status.workloads ?? [])].sort((a, b) => share(b) - share(a))[0];
  const host = status.host?.[resource];
  if (known(host) && host >= 0.01 && host > (first ? share(first) : 0))
    return ` Most of what is in use is taken outside of Pods, by the host (${percent(host)}).`;
  if (!first || share(first) < 0.01) return "";
  return ` Most of what is in use is taken by ${first.pods} Pod${first.pods === 1 ? "" : "s"} of ${first.workload} (${percent(share(first))}).`;
}

function mode(status) {
  const wide = known(status.low) && known(status.high) ? `between ${number(status.low)} and ${number(status.high)}` : "unknown";
  if (status.mode === "learning")
    return `This is a first estimate: ${unseen(status)}, so each such Pod is assumed to keep one core busy. The true number may lie anywhere ${wide}.`;
  if (status.mode === "predicted")
    return `Containers are starting or ending, so the number is predicted from the usage just before. The 90 % interval lies ${wide}.`;
  return `It is measured from current usage. The 90 % interval lies ${wide}.`;
}

// Why nothing better than a guess is possible.
function unseen(status) {
  const unknown = Object.keys(status.usage ?? {}).filter((name) => !known(status.usage[name]));
  if (unknown.length) return `the agent cannot read ${unknown.map(resourceName).join(", ")} now`;
  if (status.pods && !status.pods_measured) return "the agent does not measure Pods one by one here, and cannot tell what one takes";
  const workloads = (status.workloads ?? []).filter((workload) => !workload.per_node);
  const asleep = workloads.filter((workload) => !workload.trusted).reduce((sum, workload) => sum + workload.arrivals, 0);
  if (asleep && workloads.some((workload) => workload.trusted)) return `${percent(asleep)} of recent arrivals have not been busy yet`;
  return "no busy Pod has been observed yet";
}

// Capacity k and what it is counted in, where the method is carico.
function unit(status) {
  if (status.method !== "carico" || !known(status.capacity) || !known(status.sigma)) return "";
  const parts = Object.entries(status.direction ?? {}).map(([name, share]) => `${percent(status.sigma * share)} of the ${resourceName(name)}`);
  return `Capacity is ${number(status.capacity, 2)} units of the recent workload, ${parts.join(" and ")}; one Pod costs ${number(status.per_pod_cost, 2)}.`;
}

function reserved(status) {
  if (!status.reserved) return "";
  return `Schedulers hold room for ${status.reserved} Pod${status.reserved === 1 ? "" : "s"} on the way, so ${status.available} can still be reserved.`;
}
