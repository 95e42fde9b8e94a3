// The JSON API of the appliance, as far as the page uses it. Fields that hold zero are left out of answers.

export interface Box { xMin?: number; yMin?: number; xMax?: number; yMax?: number }

/** Mask is an area of the picture. */
export interface Mask { points?: Point[] }

export interface Camera {
  name: string;
  etag?: string;
  displayName?: string;
  source?: { uri?: string; username?: string; passwordSet?: boolean; transport?: string; mainUri?: string };
  analysis?: { fps?: number; pipeline?: string; paused?: boolean; priority?: string; motionGate?: { ignore?: Mask[] } };
  privacyMasks?: Mask[];
  recording?: { noPictures?: boolean; clip?: string };
  desiredState?: string;
  status?: CameraStatus;
}

export interface CameraStatus {
  state?: string;
  reason?: string;
  message?: string;
  sinceTime?: string;
  streamEpoch?: string;
  media?: { codec?: string; width?: number; height?: number; fps?: number };
  lastFrameTime?: string;
  sequence?: string;
  receivedFps?: number;
  analysedFps?: number;
  drops?: Record<string, string>;
  analysisReason?: string;
  analysisMessage?: string;
  analysedFrames?: string;
  nextRetryTime?: string;
  limitedFps?: number;
  ingest?: { transport?: string; decoder?: string; decoderFallback?: string; gop?: number; bitRate?: number; senderReports?: boolean; clockOffset?: string; packetsLost?: string; decodeErrors?: string };
}

export interface Point { x?: number; y?: number }

interface Rule {
  name: string;
  etag?: string;
  displayName?: string;
  anchor?: string;
  classes?: string[];
  minScore?: number;
  inertia?: string;
  schedule?: object;
  disabled?: boolean;
}

export interface Zone extends Rule { polygon: Point[]; dwell?: string; loitering?: string; occupancy?: number }
export interface Line extends Rule { start: Point; end: Point }

export interface Count { rule: string; type: string; class?: string; direction?: string; startTime: string; count: string }

export interface Detection { captureTime: string; box: Box; class?: string; track?: string }

export interface Model {
  name: string;
  version?: string;
  state?: string;
  reason?: string;
  backend?: string;
  maxBatchSize?: number;
  scheduling?: string;
  wantedProviders?: string[];
  effectiveProviders?: string[];
  fallbackReason?: string;
  pendingRequests?: string;
  lastInferenceTime?: string;
  successes?: string;
  failures?: string;
  inferences?: string;
  executions?: string;
  mean?: string;
  meanQueue?: string;
  meanInput?: string;
  meanCompute?: string;
  meanOutput?: string;
  batches?: { size?: string; count?: string; meanCompute?: string }[];
  description?: string;
}

export interface BoxSample {
  time: string;
  cpu?: number;
  processors?: number;
  memoryBytes?: string;
  memoryTotalBytes?: string;
  diskFreeBytes?: string;
  diskTotalBytes?: string;
  storeBytes?: string;
  processes?: { name: string; cpu?: number; residentBytes?: string; goroutines?: string }[];
  gpus?: { name: string; utilization?: number; memoryUsedBytes?: string; memoryTotalBytes?: string }[];
  pendingRequests?: string;
  pendingCommits?: string;
  stages?: { stage: string; meanSeconds?: number; p99Seconds?: number; frames?: string }[];
}

export interface CameraSample { camera: string; time: string; receivedFps?: number; analysedFps?: number; droppedFps?: number }

export interface Track {
  name: string;
  camera: string;
  class?: string;
  score?: number;
  startTime?: string;
  endTime?: string;
  state?: string;
  endReason?: string;
  observations?: string;
  box?: Box;
  /** Where its centre was. */
  path?: { time: string; x?: number; y?: number }[];
  /** Where its best picture is; empty: there is none (yet). */
  picture?: string;
}

export interface Observation { track?: string; localId?: string; box: Box; class?: string; score?: number }

export interface Frame {
  camera: string;
  captureTime: string;
  observations?: Observation[];
}

export interface Event { name: string; camera?: string; type: string; time: string; track?: string; attributes?: Record<string, string>; snapshot?: string; clip?: string }

/** Outlook is how long the disk lasts. */
export interface Outlook { course?: string; daysLeft?: number; bytesPerDay?: string }

export interface System {
  version?: string;
  startTime?: string;
  serverTime?: string;
  demo?: boolean;
  sample?: BoxSample;
  storage?: { pressure?: string; usedBytes?: string; freeBytes?: string; mediaBytes?: string; oldestTime?: string; days?: number; shedDetections?: string; lastCommitTime?: string; commitErrors?: string; damaged?: string[]; walBytes?: string; outlook?: Outlook };
  load?: { level?: string; message?: string };
  processes?: { name: string; state?: string; reason?: string; message?: string; restarts?: string }[];
}

/** Who looks, and what they may do. */
export interface Session { user?: string; role?: string; cameras?: string[]; expireTime?: string }

export interface Sink {
  name: string;
  etag?: string;
  displayName?: string;
  mqtt?: { uri?: string };
  webhook?: { uri?: string };
  nats?: { uri?: string };
  kafka?: { brokers?: string[] };
  types?: string[];
  cameras?: string[];
  secretSet?: boolean;
  disabled?: boolean;
  status?: { state?: string; message?: string; delivered?: string; failures?: string; deadLetters?: string; oldestWaitingTime?: string; nextAttemptTime?: string };
}

/** How long frames took, stage by stage. */
export interface Timing {
  stages?: { stage: string; p50?: string; p99?: string; max?: string; frames?: number }[];
  total?: { p50?: string; p99?: string; max?: string; frames?: number };
}

/** What the doctor found. */
export interface Finding { check?: string; severity?: string; message?: string; advice?: string }

/** What the box can analyse, measured on itself. */
export interface Capacity { measured?: boolean; used?: number; limit?: number; cameraCost?: number; camerasLeft?: number; summary?: string; unmeasuredPipelines?: string[] }

/** Refusal is an answer other than 2xx, with the reason to branch on and the sentence to show. */
export class Refusal extends Error {
  constructor(readonly status: number, readonly reason: string, message: string) {
    super(message);
  }
}

interface ErrorBody { message?: string; reason?: string; details?: { reason?: string; fieldViolations?: { field: string; description: string }[] }[] }

/** ask calls the API. A body makes it JSON. */
export async function ask<T>(method: string, path: string, body?: unknown): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(path, {
      method,
      headers: { "X-Vedette": "page", ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Refusal(0, "OFFLINE", "The appliance does not answer. Is the vedette service running?");
  }
  if (answer.status === 204) return undefined as T;
  if (!answer.ok) throw await refusalOf(answer);
  return (await answer.json()) as T;
}

/** refusalOf reads why an answer is another than 2xx. */
export async function refusalOf(answer: Response): Promise<Refusal> {
  const text = await answer.text();
  let b: ErrorBody = {};
  try {
    b = JSON.parse(text) as ErrorBody;
  } catch {
    b = { message: text || answer.statusText };
  }
  const reason = b.reason ?? b.details?.find((d) => d.reason)?.reason ?? String(answer.status);
  const fields = b.details?.flatMap((d) => d.fieldViolations ?? []).map((v) => `${v.field}: ${v.description}`) ?? [];
  if (answer.status === 403) fields.push("Sign in with a token that may do this.");
  const message = [b.message ?? answer.statusText, ...fields.filter((f) => !b.message?.includes(f))].join("\n");
  return new Refusal(answer.status, reason, message);
}
