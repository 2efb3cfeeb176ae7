// Training by a file of lucid.export.training_step, as lucid.runtime.Training does it in Python.
"use strict";

const NEW = /^new_(weights|state)\./; // what the names of outputs begin with that are inputs of the next step

class Training {
  // The weights and the optimizer's state begin with zeros.
  constructor(session) {
    this.session = session;
    this.steps = 0;
    const carried = session.outputNames.filter((name) => NEW.test(name)).map((name) => name.replace(NEW, ""));
    const inputs = session.inputMetadata.filter(({ name }) => carried.includes(name));
    const zeros = (shape) => new ort.Tensor("float32", new Float32Array(shape.reduce((a, b) => a * b, 1)), shape);
    this.carried = Object.fromEntries(inputs.map(({ name, shape }) => [name, zeros(shape)]));
  }

  // Makes one step with the inputs of the loss, by name, and gives the loss before it.
  async step(inputs) {
    const step = new ort.Tensor("int64", [BigInt(this.steps)], []);
    const { loss, gradient_norm, ...found } = await this.session.run({ ...inputs, ...this.carried, step });
    if (!Number.isFinite(loss.data[0]) || !Number.isFinite(gradient_norm.data[0])) {
      throw new Error(`at step ${this.steps} the loss is ${loss.data[0]}, and the gradients' norm ${gradient_norm.data[0]}`);
    }
    this.carried = Object.fromEntries(Object.entries(found).map(([name, value]) => [name.replace(NEW, ""), value]));
    this.steps++;
    return loss.data[0];
  }
}
